"""The console as a part of the application: its routes, and what guards all of them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from types import SimpleNamespace
from typing import Any
from urllib.parse import quote

from fastapi import FastAPI, Request
from fastapi.responses import RedirectResponse, Response
from starlette.requests import ClientDisconnect
from starlette.routing import Mount, Route, Router
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from datp_tasks.api.console import (
    alerts_page,
    approvals_page,
    audit_page,
    bulk_page,
    cases_page,
    drafts_page,
    endpoints_page,
    groups_page,
    in_doubt_page,
    ledgers_page,
    mappings_page,
    metrics_page,
    now_page,
    pipelines_page,
    search_page,
    sign_in,
    timeouts_page,
    transaction_actions,
    transaction_page,
    transactions_page,
    try_page,
    webhooks_page,
)
from datp_tasks.api.console.case_runs import CaseRuns
from datp_tasks.api.console.identity_file import load_identity
from datp_tasks.api.console.oidc import Oidc
from datp_tasks.api.console.request_checks import (
    form_of,
    prefix_of,
    refuse_former,
    refuse_other_sites,
    vouched_for,
)
from datp_tasks.api.console.sessions import COOKIE, Session, Sessions, SignedOut
from datp_tasks.api.console.static_files import static_response
from datp_tasks.api.console.streams import STREAMS_MAX, LiveView, Streams, TabStream
from datp_tasks.api.console.visit import (
    ConsoleParts,
    ConsoleRoute,
    Visit,
    base_of,
    keep_session,
    problem_text,
)
from datp_tasks.api.problems import Problem, forbidden, not_found, problem_of
from datp_tasks.api.routing import refuse_doubled
from datp_tasks.api.services import Services
from datp_tasks.api.threads import acting_for
from datp_tasks.api.waiting import ClientGone
from datp_tasks.errors import ApprovalNeeded
from datp_tasks.model.actor import Role
from datp_tasks.settings import Settings

#: A page is added by its module's `pages` here, its view below, and a row in `NAVIGATION`.
PAGES = (
    now_page.pages,
    transactions_page.pages,
    transaction_page.pages,
    transaction_actions.pages,
    bulk_page.pages,
    in_doubt_page.pages,
    alerts_page.pages,
    approvals_page.pages,
    pipelines_page.pages,
    cases_page.pages,
    drafts_page.pages,
    mappings_page.pages,
    groups_page.pages,
    webhooks_page.pages,
    endpoints_page.pages,
    ledgers_page.pages,
    timeouts_page.pages,
    metrics_page.pages,
    audit_page.pages,
    try_page.pages,
    search_page.pages,
)
VIEWS: dict[str, LiveView] = {
    view.name: view
    for view in (
        now_page.VIEW,
        transactions_page.VIEW,
        transaction_page.VIEW,
        in_doubt_page.VIEW,
        alerts_page.VIEW,
        approvals_page.VIEW,
        pipelines_page.VIEW,
        pipelines_page.VERSIONS_VIEW,
        mappings_page.VIEW,
        mappings_page.MAPPING_VIEW,
        groups_page.VIEW,
        groups_page.GROUP_VIEW,
        webhooks_page.VIEW,
        webhooks_page.DELIVERY_VIEW,
        endpoints_page.VIEW,
        ledgers_page.VIEW,
        ledgers_page.BATCH_VIEW,
        timeouts_page.VIEW,
        metrics_page.VIEW,
    )
}
HEADERS = [
    (
        b"content-security-policy",
        b"default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; "
        b"connect-src 'self'; form-action 'self'; frame-ancestors 'none'; base-uri 'none'",
    ),
    # Without a referrer the browser would also leave out the origin of a form.
    (b"referrer-policy", b"same-origin"),
    (b"x-frame-options", b"DENY"),
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"permissions-policy", b"camera=(), geolocation=(), microphone=()"),
]

Endpoint = Callable[[Request], Awaitable[Response]]


def console_routes() -> list[ConsoleRoute]:
    """Every page and action that needs a session."""
    return [route for pages in PAGES for route in pages.routes]


class Console:
    """The console of one process; it opens with the services."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._identity = load_identity(settings.identity_file)
        self._oidc = Oidc(self._identity.oidc, settings) if self._identity.oidc else None
        self._parts: ConsoleParts | None = None

    def open(self, services: Services, case_runs: CaseRuns) -> None:
        self._parts = ConsoleParts(
            services=services,
            case_runs=case_runs,
            sessions=Sessions(services, self._settings),
            streams=Streams(services, STREAMS_MAX),
            identity=self._identity,
        )

    def end_streams(self) -> None:
        if self._parts is not None:
            self._parts.streams.end_all()

    def close(self) -> None:
        self.end_streams()
        if self._oidc is not None:
            self._oidc.close()

    @property
    def parts(self) -> ConsoleParts:
        assert self._parts is not None, "the console is opened with the services"
        return self._parts

    def install(self, app: FastAPI) -> None:
        path = self._settings.console_path
        guarded = [
            Route(each.path, self._guarded(each), methods=[each.method])
            for each in console_routes()
        ]
        open_routes = [
            Route("/", self._home, methods=["GET"]),
            Route("/static/{mark}/{name}", self._static, methods=["GET"]),
            Route("/sign-in", self._sign_in, methods=["GET", "POST"]),
            Route("/sign-out", self._sign_out, methods=["POST"]),
            Route("/oidc/begin", self._oidc_begin, methods=["GET"]),
            Route("/oidc/callback", self._oidc_callback, methods=["GET"]),
            Route("/live", self._live, methods=["GET"]),
        ]
        routes = Router([*open_routes, *guarded], redirect_slashes=False, default=_nothing_here)
        app.router.routes.append(Route(path, self._home, methods=["GET"]))
        app.router.routes.append(Mount(path, app=_Wrapped(routes, self._settings)))

    # Open to those who are not signed in.

    async def _home(self, request: Request) -> Response:
        # The path without a slash is outside of what knows the prefix.
        base = base_of(request) or prefix_of(request.scope, self._settings.api_proxies)
        if not base.endswith(self._settings.console_path):
            base += self._settings.console_path
        return RedirectResponse(f"{base}/now", 303)

    async def _static(self, request: Request) -> Response:
        found = static_response(request.path_params["name"])
        return found or not_found("such file").response(request.state.request_id)

    async def _sign_in(self, request: Request) -> Response:
        if request.method == "GET":
            return await sign_in.show(request, self.parts)
        refuse_other_sites(request)
        return await sign_in.with_key(request, self.parts, await form_of(request, self._settings))

    async def _sign_out(self, request: Request) -> Response:
        refuse_other_sites(request)
        return sign_in.signed_out(request)

    async def _oidc_begin(self, request: Request) -> Response:
        if self._oidc is None:
            raise not_found("OIDC provider")
        return await self._oidc.begin(request, self.parts)

    async def _oidc_callback(self, request: Request) -> Response:
        if self._oidc is None:
            raise not_found("OIDC provider")
        return await self._oidc.come_back(request, self.parts)

    # With a session.

    async def _live(self, request: Request) -> Response:
        """One stream per tab; a tab without a session is told so by the status."""
        parts = self.parts
        try:
            session, caller = await self._who(request)
        except SignedOut as error:
            raise Problem(401, "unauthorized", str(error) or "Sign in first.") from None
        if not caller.actor.has(Role.VIEWER):
            raise forbidden("This needs a key with a role.")
        await parts.services.admission.limits.take(caller.owner)
        refuse_doubled(request)
        params = dict(request.query_params)
        view = VIEWS.get(params.pop("view", ""))
        if view is None:
            raise not_found("such view")

        async def is_good() -> bool:
            try:
                await parts.sessions.caller(session, request)
            except SignedOut:
                return False
            return not await parts.sessions.is_over(session)

        params["base"] = base_of(request)
        source = parts.streams.follow(view, params, caller.owner, is_good)
        return TabStream(source, [])  # type: ignore[return-value]

    def _guarded(self, route: ConsoleRoute) -> Endpoint:
        async def endpoint(request: Request) -> Response:
            request.scope["route"] = SimpleNamespace(path=f"/console{route.path}")
            try:
                session, caller = await self._who(request)
            except SignedOut as error:
                return self._not_signed_in(request, str(error))
            visit = Visit(request=request, console=self.parts, caller=caller, session=session)
            try:
                return await self._answer(visit, route)
            except ApprovalNeeded as error:
                return visit.back_to(f"/approvals/{error.approval_id}", str(error))
            except (ClientGone, ClientDisconnect):
                raise ClientGone from None
            except Exception as error:
                return _told(visit, route, problem_of(error))

        return endpoint

    async def _answer(self, visit: Visit, route: ConsoleRoute) -> Response:
        services, request, owner = self.parts.services, visit.request, visit.caller.owner
        if request.method == "POST":
            refuse_other_sites(request)
        if not visit.has(route.role):
            raise forbidden(
                f"This needs the role {route.role}; you are signed in as "
                f"{visit.caller.actor.role or 'a client'}."
            )
        await services.admission.limits.take(owner)
        if request.method == "POST":
            visit.form = await form_of(request, self._settings, takes_input=route.takes_input)
            if not self.parts.sessions.is_form_token(visit.session, visit.form.pop("token", "")):
                raise forbidden("This form is not of your session. Load the page again.")
        refuse_doubled(request)
        with services.admission.requests.held(owner), acting_for(owner):
            response = await route.handle(visit)
        renewed = await self.parts.sessions.renewed(visit.session)
        if renewed is not None and visit.session.way != "proxy":
            keep_session(request, response, self.parts.sessions, renewed)
        return response

    async def _who(self, request: Request) -> tuple[Session, Any]:
        sessions = self.parts.sessions
        session = vouched_for(request, self._identity)
        if session is None:
            session = await sessions.of_cookie(request.cookies.get(COOKIE, ""))
            refuse_former(session, self._identity)
        return session, await sessions.caller(session, request)

    def _not_signed_in(self, request: Request, trouble: str) -> Response:
        came = request.headers.get("sec-fetch-site", "")
        if request.method == "GET" and came == "cross-site" and COOKIE not in request.cookies:
            # A link on another site does not carry a strict cookie; our own page does.
            return sign_in.outside_page(request, "go_on.html", place=_asked_for(request))
        return sign_in.go_to_sign_in(request, trouble)


def _asked_for(request: Request) -> str:
    query = request.url.query
    return f"{request.url.path}?{query}" if query else request.url.path


def _told(visit: Visit, route: ConsoleRoute, problem: Problem) -> Response:
    """In the page that the person came from, if it was about what the person asked for."""
    is_about_it = problem.status_code < 500 and problem.status_code not in (401, 403, 429)
    if route.back and is_about_it:
        parts = {name: quote(str(part), "") for name, part in visit.request.path_params.items()}
        back = route.back.format(**parts)
        return visit.back_to(back, trouble=problem_text(problem))
    response = visit.page(
        "error.html",
        problem.status_code,
        code=problem.status_code,
        detail=problem_text(problem),
        error_id=problem.members.get("errorId", ""),
    )
    response.headers.update(problem.headers or {})
    return response


async def _nothing_here(scope: Scope, receive: Receive, send: Send) -> None:
    request = Request(scope, receive)
    response = sign_in.outside_page(request, "nothing_here.html", 404, path=request.url.path)
    await response(scope, receive, send)


class _Wrapped:
    """Around every answer of the console: its headers, and where the browser sees it."""

    def __init__(self, app: ASGIApp, settings: Settings) -> None:
        self._app = app
        self._proxies = settings.api_proxies

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        prefix = prefix_of(scope, self._proxies)
        if prefix:
            # Both, so that routes below find their part of the path.
            scope = {
                **scope,
                "root_path": prefix + scope["root_path"],
                "path": prefix + scope["path"],
            }

        async def sending(message: Message) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [*message["headers"], *HEADERS]
            await send(message)

        try:
            await self._app(scope, receive, sending)
        except ClientGone:
            raise
        except Exception as error:
            problem = problem_of(error)
            page = sign_in.outside_page(
                Request(scope, receive),
                "trouble.html",
                problem.status_code,
                trouble=problem_text(problem),
                error_id=problem.members.get("errorId", ""),
            )
            page.headers.update(problem.headers or {})
            await page(scope, receive, sending)
