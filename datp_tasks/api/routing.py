"""Routes that ask for a key before they read a body, and read no more of it than is allowed."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeVar

from fastapi import APIRouter, Request
from fastapi.responses import Response
from fastapi.routing import APIRoute
from pydantic import BaseModel, ValidationError

from datp_tasks.api.access import Caller
from datp_tasks.api.body import StrictRequest
from datp_tasks.api.once import HEADER_NAME, kept_by, once
from datp_tasks.api.problems import forbidden, invalid, mistakes_of
from datp_tasks.api.services import Services, services_of
from datp_tasks.api.threads import acting_for
from datp_tasks.model.actor import Role
from datp_tasks.model.payload import encode, first_twice
from datp_tasks.settings import Settings

#: A client that sends more slowly holds a place that others need.
BODY_READ_S = 30.0
#: Room for the fields around the input.
AROUND_BYTES = 65_536

BytesMax = Callable[[Settings], int]
Admit = Callable[[Services, Request], Coroutine[Any, Any, Caller]]
Handler = Callable[[Request], Coroutine[Any, Any, Response]]


def one_transaction(settings: Settings) -> int:
    return settings.input_bytes_max + AROUND_BYTES


def _authorization(request: Request) -> str | None:
    for name, value in request.scope["headers"]:
        if name == b"authorization":
            found: str = value.decode("latin-1")
            return found
    return None


async def by_key(services: Services, request: Request) -> Caller:
    return await services.admission.gate.admit(
        _authorization(request),
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


def grants(*names: str) -> Callable[[Endpoint], Endpoint]:
    """Which grants let a client's key use this route, for the document; the route checks them."""

    def mark(endpoint: Endpoint) -> Endpoint:
        endpoint.needed_grants = names  # type: ignore[attr-defined]
        return endpoint

    return mark


@dataclass(frozen=True, slots=True)
class Body:
    """How a body is read without the framework, which takes longer than the rest of a submit."""

    model: type[BaseModel]
    #: Called with a body that does not fit, before it is refused.
    on_misfit: Callable[[Request, Any], Awaitable[None]]


def reads(body: Body) -> Callable[[Endpoint], Endpoint]:
    """The endpoint takes a request and this body, and the application calls its route without
    looking through the others."""

    def mark(endpoint: Endpoint) -> Endpoint:
        endpoint.read_body = body  # type: ignore[attr-defined]
        return endpoint

    return mark


def _reading(endpoint: Callable[..., Awaitable[Response]], body: Body) -> Handler:
    async def handle(request: Request) -> Response:
        sent = await request.json() if await request.body() else None
        try:
            wanted = body.model.model_validate(sent)
        except ValidationError as error:
            await body.on_misfit(request, sent)
            raise invalid(mistakes_of(error)) from None
        return await endpoint(request, wanted)

    return handle


def strict_request(request: Request, caller: Caller, bytes_max: BytesMax) -> StrictRequest:
    services = services_of(request)
    if isinstance(request, StrictRequest):
        strict = request
    else:
        strict = StrictRequest(request.scope, request.receive)
    strict.state.caller = caller
    settings = services.settings
    return strict.limit(bytes_max(settings), BODY_READ_S, services.admission.body_bytes)


class GuardedRoute(APIRoute):
    """Its key is checked first; then limits, the body, and what an Idempotency-Key asks for."""

    role: Role | None = None
    bytes_max: BytesMax = staticmethod(one_transaction)
    admit: Admit = staticmethod(by_key)

    @property
    def needed_role(self) -> Role | None:
        found: Role | None = getattr(self.endpoint, "needed_role", self.role)
        return found

    def get_route_handler(self) -> Handler:
        body: Body | None = getattr(self.endpoint, "read_body", None)
        handle = super().get_route_handler() if body is None else _reading(self.endpoint, body)
        needed, kept = self.needed_role, kept_by(self.endpoint)

        async def guarded(request: Request) -> Response:
            services = services_of(request)
            caller = await self.admit(services, request)
            request.state.caller = caller
            if needed is not None and not caller.actor.has(needed):
                raise forbidden(f"This needs a key with the role {needed}.")
            await services.admission.limits.take(caller.owner)
            if request.scope["query_string"]:
                refuse_doubled(request)
            strict = strict_request(request, caller, self.bytes_max)
            with services.admission.requests.held(caller.owner), acting_for(caller.owner):
                try:
                    # Here, and not by the framework, which would call its errors its own.
                    await strict.body()
                    if request.method == "POST" and strict.header(HEADER_NAME) is not None:
                        return await once(strict, handle, kept)
                    return await handle(strict)
                finally:
                    strict.release()

        return guarded

    @cached_property
    def handler(self) -> Handler:
        """For the application, which calls some routes without looking through the others."""
        return self.get_route_handler()


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
    fields = {"role": role, "bytes_max": staticmethod(bytes_max), "admit": staticmethod(admit)}
    route_class = type("GuardedRoute", (GuardedRoute,), fields)
    return APIRouter(prefix=prefix, tags=[tag], route_class=route_class, redirect_slashes=False)


def refuse_doubled(request: Request) -> None:
    """Which of two values was meant is not known."""
    name = first_twice(name for name, _ in request.query_params.multi_items())
    if name is not None:
        raise invalid([{"loc": ("query", name), "msg": "this was given more than once"}])


#: Of what depends on the header Accept: a cache must not give one client what another one got.
VARY = {"Vary": "Accept"}


def json_response(
    content: Any, status: int = 200, headers: dict[str, str] | None = None
) -> Response:
    """JSON as we write it everywhere: no NaN, nothing escaped that need not be."""
    return Response(encode(content), status, headers=headers, media_type="application/json")
