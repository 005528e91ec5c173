"""Routes that ask for a key before they read a body, and read no more of it than is allowed."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from fastapi import APIRouter, Request
from fastapi.responses import Response
from fastapi.routing import APIRoute

from datp_tasks.api.access import Caller
from datp_tasks.api.body import StrictRequest
from datp_tasks.api.problems import forbidden, invalid
from datp_tasks.api.services import Services, services_of
from datp_tasks.api.threads import acting_for
from datp_tasks.model.actor import Role
from datp_tasks.model.payload import encode, first_twice
from datp_tasks.settings import Settings

#: Room for the fields around the data.
AROUND_BYTES = 65_536

BytesMax = Callable[[Settings], int]
Admit = Callable[[Services, Request], Coroutine[Any, Any, Caller]]


def one_transaction(settings: Settings) -> int:
    return settings.input_bytes_max + AROUND_BYTES


async def by_key(services: Services, request: Request) -> Caller:
    return await services.gate.admit(
        request.headers.get("authorization"),
        request_id=request.state.request_id,
        address=request.client.host if request.client else "",
    )


Endpoint = TypeVar("Endpoint", bound=Callable[..., Any])


def needs(role: Role) -> Callable[[Endpoint], Endpoint]:
    """This route needs less, or more, than the others of its router."""

    def mark(endpoint: Endpoint) -> Endpoint:
        endpoint.needed_role = role  # type: ignore[attr-defined]
        return endpoint

    return mark


def strict_request(request: Request, caller: Caller, bytes_max: BytesMax) -> StrictRequest:
    services = services_of(request)
    strict = StrictRequest(request.scope, request.receive)
    strict.state.caller = caller
    settings = services.settings
    return strict.limit(bytes_max(settings), settings.body_read_s, services.body_bytes)


def router(
    prefix: str,
    tag: str,
    *,
    role: Role | None = None,
    bytes_max: BytesMax = one_transaction,
    admit: Admit = by_key,
) -> APIRouter:
    """A router whose routes need a key with this role, unless `needs` says another.

    Without a role the keys of clients are let in, too; the route asks for their grants.
    """

    class GuardedRoute(APIRoute):
        def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
            handle = super().get_route_handler()
            needed = getattr(self.endpoint, "needed_role", role)

            async def guarded(request: Request) -> Response:
                services = services_of(request)
                caller = await admit(services, request)
                if needed is not None and not caller.actor.has(needed):
                    raise forbidden(f"This needs a key with the role {needed}.")
                await services.limits.take(caller.owner)
                refuse_doubled(request)
                strict = strict_request(request, caller, bytes_max)
                with services.requests.held(caller.owner), acting_for(caller.owner):
                    try:
                        # Here, and not by the framework, which would call its errors its own.
                        await strict.body()
                        return await handle(strict)
                    finally:
                        strict.release()

            return guarded

    return APIRouter(prefix=prefix, tags=[tag], route_class=GuardedRoute, redirect_slashes=False)


def refuse_doubled(request: Request) -> None:
    """Which of two values was meant is not known."""
    name = first_twice(name for name, _ in request.query_params.multi_items())
    if name is not None:
        raise invalid([{"loc": ("query", name), "msg": "this was given more than once"}])


def json_response(
    content: Any, status: int = 200, headers: dict[str, str] | None = None
) -> Response:
    """JSON as we write it everywhere: no NaN, nothing escaped that need not be."""
    return Response(encode(content), status, headers=headers, media_type="application/json")
