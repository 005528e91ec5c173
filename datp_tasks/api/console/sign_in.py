"""Signing in and out: with an API key, or as whom an OIDC provider vouches for."""

from __future__ import annotations

from typing import Any
from urllib.parse import urlsplit

from fastapi import Request
from fastapi.responses import HTMLResponse, RedirectResponse, Response

from datp_tasks.api.console.render import html
from datp_tasks.api.console.sessions import COOKIE
from datp_tasks.api.console.static_files import content_mark
from datp_tasks.api.console.visit import ConsoleParts, base_of, keep_session, with_query
from datp_tasks.api.problems import Problem
from datp_tasks.model.actor import Actor

NOT_AN_OPERATOR = (
    "This key belongs to a client. The console is for people who run the system: use a key with "
    "the role viewer, operator, approver or admin (datp keys create --role viewer)."
)


def local_path(text: str) -> str:
    """Where to go on, within the console; never to another server."""
    try:
        parts = urlsplit(text)
    except ValueError:
        return "/now"
    is_ours = not parts.scheme and not parts.netloc and text.startswith("/")
    return text if is_ours and not text.startswith(("//", "/\\")) else "/now"


def outside_page(request: Request, template: str, status: int = 200, **context: Any) -> Response:
    """A page for one who is not signed in."""
    base = base_of(request)
    shared = {"base": base, "static": f"{base}/static/{content_mark()}", "trouble": ""}
    return HTMLResponse(html(template, {**shared, **context}), status)


def ask_to_sign_in(
    request: Request,
    console: ConsoleParts,
    *,
    trouble: str = "",
    status: int = 200,
    on: str = "/now",
) -> Response:
    has_oidc = console.identity.oidc is not None
    return outside_page(request, "sign_in.html", status, trouble=trouble, on=on, has_oidc=has_oidc)


def go_to_sign_in(request: Request, trouble: str) -> Response:
    """From a page that needs a session; afterwards the person comes back to it."""
    base = base_of(request)
    path = request.url.path.removeprefix(base)
    if request.url.query:
        path += f"?{request.url.query}"
    on = path if request.method == "GET" and path not in ("", "/", "/now") else ""
    place = with_query(f"{base}/sign-in", {"on": on, "ended": "1" if trouble else ""})
    response = RedirectResponse(place, 303)
    if trouble:
        response.delete_cookie(COOKIE, path=base)
    return response


async def show(request: Request, console: ConsoleParts) -> Response:
    trouble = "The session has ended. Sign in again." if "ended" in request.query_params else ""
    on = local_path(request.query_params.get("on", "/now"))
    return ask_to_sign_in(request, console, trouble=trouble, on=on)


async def with_key(request: Request, console: ConsoleParts, form: dict[str, str]) -> Response:
    """Flooding it with wrong keys is refused by the same gate that guards the API."""
    on = local_path(form.get("on", "/now"))
    try:
        caller = await console.services.admission.gate.admit(
            f"Bearer {form.get('key', '').strip()}",
            request_id=request.state.request_id,
            address=request.client.host if request.client else "",
        )
    except Problem as problem:
        trouble = str(problem.detail)
        if problem.status_code == 401:
            trouble = "This API key is unknown, has expired or was revoked."
        status = problem.status_code
        return ask_to_sign_in(request, console, trouble=trouble, status=status, on=on)
    if not caller.is_operator:
        return ask_to_sign_in(request, console, trouble=NOT_AN_OPERATOR, status=403, on=on)
    return await signed_in(request, console, caller.actor, "key", on)


async def signed_in(
    request: Request,
    console: ConsoleParts,
    actor: Actor,
    way: str,
    on: str,
    *,
    by_page: bool = False,
) -> Response:
    """`by_page`: a redirect that another site began would not carry the new cookie along."""
    place = base_of(request) + on
    response: Response = RedirectResponse(place, 303)
    if by_page:
        response = outside_page(request, "go_on.html", place=place)
    keep_session(request, response, console.sessions, await console.sessions.begin(actor, way))
    return response


def signed_out(request: Request) -> Response:
    response = RedirectResponse(f"{base_of(request)}/sign-in", 303)
    response.delete_cookie(COOKIE, path=base_of(request))
    return response
