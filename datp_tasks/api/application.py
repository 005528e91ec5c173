"""The application: what uvicorn runs in each process of the API."""

from __future__ import annotations

import asyncio
import re
import signal
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from importlib.metadata import version
from types import FrameType
from typing import Any

from fastapi import FastAPI, Request
from pydantic.alias_generators import to_camel
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from datp_tasks.api import (
    api_keys,
    approvals,
    audit_actions,
    batches,
    bulk_actions,
    bulk_submit,
    bulk_transfers,
    case_routes,
    compat,
    event_pages,
    explain,
    groups,
    health,
    input_schemas,
    inspect,
    ledger_operator,
    mappings,
    openapi,
    operator,
    operator_runs,
    pipeline_versions,
    problems,
    retention_routes,
    root,
    sealing_routes,
    series,
    step_types,
    transactions,
    webhook_endpoints,
    webhooks,
)
from datp_tasks.api.body import StrictRequest
from datp_tasks.api.console.case_runs import CaseRuns
from datp_tasks.api.console.mount import Console
from datp_tasks.api.door import HEADERS, Door
from datp_tasks.api.request_ids import new_request_id
from datp_tasks.api.routing import GuardedRoute
from datp_tasks.api.services import Services
from datp_tasks.api.waiting import ClientGone
from datp_tasks.model.traceparent import clean_traceparent
from datp_tasks.record.api_keys import KeyHash
from datp_tasks.settings import Settings

ROUTERS = (
    bulk_submit.routes,
    bulk_transfers.routes,
    transactions.routes,
    batches.routes,
    ledger_operator.routes,
    webhooks.routes,
    input_schemas.routes,
    webhook_endpoints.routes,
    event_pages.routes,
    inspect.routes,
    operator.routes,
    step_types.routes,
    approvals.routes,
    audit_actions.routes,
    api_keys.own,
    api_keys.routes,
    bulk_actions.routes,
    explain.routes,
    groups.routes,
    retention_routes.routes,
    operator_runs.audits,
    operator_runs.erasures,
    sealing_routes.routes,
    pipeline_versions.routes,
    case_routes.routes,
    mappings.routes,
    compat.routes,
    compat.open_routes,
    health.router,
    series.routes,
    series.scrape_routes,
    root.routes,
)
REQUEST_ID = re.compile(rb"[A-Za-z0-9._:/+=-]{1,64}")
#: No route has more than twenty.
QUERY_PARAMETERS_MAX = 50


class Application(FastAPI):
    """Routes that read their bodies themselves also pass the framework's middleware by."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and (scope["method"], scope["path"]) in self.state.direct:
            scope["app"] = self
            await self.state.shell(scope, receive, send)
        else:
            await super().__call__(scope, receive, send)


def create_app(open_services: Callable[[], Services], settings: Settings) -> FastAPI:
    # Fail at start-up if the pepper is invalid.
    KeyHash(settings.key_pepper, settings.key_pepper_previous)
    console = Console(settings) if settings.console_path != "off" else None

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        services = open_services()
        app.state.services = services
        services.waits.polls.start()
        if console is not None:
            console.open(services, app.state.case_runs)

        def answer_all() -> None:
            services.end_waits()
            if console is not None:
                console.end_streams()

        _before_the_end(answer_all)
        try:
            yield
        finally:
            if console is not None:
                console.close()
            await services.close()

    app = Application(
        title="DATP Tasks",
        version=version("datp-tasks"),
        lifespan=lifespan,
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
        # Where a route does not name its operation itself.
        generate_unique_id_function=lambda route: to_camel(route.name),
    )
    app.state.door = Door(settings)
    app.state.case_runs = CaseRuns()
    problems.install(app)
    app.state.routers = ROUTERS
    for router in ROUTERS:
        app.include_router(router)
    if console is not None:
        console.install(app)
    app.state.shows = {"transaction": transactions.show, "delivery": webhooks.show}
    app.state.direct = _direct_routes(app)
    app.state.shell = Shell(app.router)
    app.openapi = lambda: openapi.document(app)  # type: ignore[method-assign]
    app.add_middleware(Shell)
    return app


def _direct_routes(app: FastAPI) -> dict[tuple[str, str], GuardedRoute]:
    """Routes that read their bodies themselves: they are found without looking through all."""
    return {
        (method, route.path): route
        for router in app.state.routers
        for route in router.routes
        if isinstance(route, GuardedRoute) and hasattr(route.endpoint, "read_body")
        for method in route.methods or ()
    }


def _before_the_end(answer_all: Callable[[], None]) -> None:
    """The server waits for its connections before it tells us that it ends; waiters would keep
    it waiting. So the signal that ends it reaches them first."""
    if threading.current_thread() is not threading.main_thread():
        return
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        before = signal.getsignal(number)
        if not callable(before):
            continue

        def ends(
            given: int,
            frame: FrameType | None,
            before: Callable[[int, FrameType | None], Any] = before,
        ) -> None:
            loop.call_soon_threadsafe(answer_all)
            before(given, frame)

        signal.signal(number, ends)


class Shell:
    """Around everything: headers, counts, and an answer even to an unexpected error."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        answered = 0
        state = scope.setdefault("state", {})
        request_id = _taken_over(scope, state)
        ours = [*HEADERS, (b"request-id", request_id.encode())]

        async def sending(message: Message) -> None:
            nonlocal answered
            if message["type"] == "http.response.start":
                answered = message["status"]
                kept = {name for name, _ in message["headers"]}
                added = [each for each in ours if each[0] not in kept]
                message["headers"] = [*message["headers"], *added, *_about(scope, state)]
            await send(message)

        try:
            _refuse_garbled(scope)
            direct = scope["app"].state.direct.get((scope["method"], scope["path"]))
            if direct is None:
                await self._app(scope, receive, sending)
            else:
                # Its own handler, without the framework's way to it.
                scope["route"] = direct
                response = await direct.handler(StrictRequest(scope, receive))
                await response(scope, receive, sending)
        except ClientGone:
            # The client has gone; the server wants an end all the same.
            answered = answered or 499
        except Exception as error:
            if answered:
                raise
            answer = problems.answer_of(Request(scope, receive), error)
            await answer(scope, receive, sending)
        finally:
            _count(scope, answered)


def _taken_over(scope: Scope, state: dict[str, Any]) -> str:
    """The request id: the client's, if it sent one that is fit for logs, else a new one. The place
    of the request in a trace of its client is noted, too."""
    request_id = ""
    for name, value in scope["headers"]:
        if name == b"request-id" and REQUEST_ID.fullmatch(value):
            request_id = value.decode()
        elif name == b"traceparent" and (clean := clean_traceparent(value.decode("latin-1"))):
            state["traceparent"] = clean
    request_id = request_id or new_request_id()
    state["request_id"] = request_id
    return request_id


def _about(scope: Scope, state: dict[str, Any]) -> list[tuple[bytes, bytes]]:
    """What an answer says of the request: its trace, and how much more the owner may ask for."""
    found = []
    if "traceparent" in state:
        found.append((b"traceparent", state["traceparent"].encode()))
    if "caller" in state:
        found += scope["app"].state.services.admission.limits.headers(state["caller"].owner)
    return found


def _refuse_garbled(scope: Scope) -> None:
    query = scope["query_string"]
    if "\0" in scope["path"] or b"%00" in query:
        raise problems.Problem(400, "request-invalid", "The URL contains a NUL byte.")
    if query.count(b"&") >= QUERY_PARAMETERS_MAX:
        detail = f"A URL has at most {QUERY_PARAMETERS_MAX} query parameters."
        raise problems.Problem(400, "request-invalid", detail)


def _count(scope: Scope, status: int) -> None:
    services = getattr(scope["app"].state, "services", None) if "app" in scope else None
    if services is not None:
        # Paths that are no routes are not counted one by one: there is no end to them.
        route = getattr(scope.get("route"), "path", "") or "none"
        services.health.meter.answered(scope["method"], route, status)
