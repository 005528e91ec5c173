"""One request to the console: who asks, what was sent, and how it is answered."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote, urlencode

from fastapi import Request
from fastapi.responses import HTMLResponse, Response

from datp_tasks.api.access import Caller
from datp_tasks.api.console.case_runs import CaseRuns
from datp_tasks.api.console.identity_file import Identity
from datp_tasks.api.console.render import html
from datp_tasks.api.console.sessions import COOKIE, Session, Sessions
from datp_tasks.api.console.static_files import content_mark
from datp_tasks.api.console.streams import Streams
from datp_tasks.api.problems import Problem, invalid
from datp_tasks.api.services import Services
from datp_tasks.model.actor import Role

NOTE_COOKIE = "datp_console_note"
NOTE_S = 60
REASON_CHARS_MAX = 1_000
#: The keys `g` and a letter, the name and the path of each page that the navigation shows.
NAVIGATION: list[tuple[str, str, str]] = [
    ("n", "Now", "/now"),
    ("t", "Transactions", "/transactions"),
    ("d", "In doubt", "/in-doubt"),
    ("e", "Alerts", "/alerts"),
    ("a", "Approvals", "/approvals"),
    ("p", "Pipelines", "/pipelines"),
    ("g", "Groups", "/groups"),
    ("w", "Webhooks", "/webhooks"),
    ("l", "Ledgers", "/ledgers"),
    ("x", "Timeouts", "/timeouts"),
    ("m", "Metrics", "/metrics"),
    ("u", "Audit", "/audit"),
    ("y", "Try", "/try"),
]
#: Pages that belong to one of the navigation, by the first part of their path.
BELONGS = {
    "bulk": "/transactions",
    "drafts": "/pipelines",
    "mappings": "/pipelines",
    "endpoints": "/webhooks",
    "services": "/ledgers",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsoleParts:
    """What all pages of one process share."""

    services: Services
    sessions: Sessions
    streams: Streams
    identity: Identity
    case_runs: CaseRuns


@dataclass(slots=True, kw_only=True)
class Visit:
    request: Request
    console: ConsoleParts
    caller: Caller
    session: Session
    form: dict[str, str] = field(default_factory=dict)

    @property
    def services(self) -> Services:
        return self.console.services

    @property
    def base(self) -> str:
        return base_of(self.request)

    def part(self, name: str) -> str:
        """A part of the path."""
        return str(self.request.path_params[name])

    def has(self, role: Role) -> bool:
        return self.caller.actor.has(role)

    def reason(self, name: str = "reason") -> str:
        """What the person wrote; nothing irreversible is done without it."""
        found = self.form.get(name, "").strip()
        if not found or len(found) > REASON_CHARS_MAX:
            text = f"write a reason, of at most {REASON_CHARS_MAX} characters"
            raise invalid([{"loc": (name,), "msg": text}])
        return found

    async def run(self, work: Callable[..., Any], *args: Any, **options: Any) -> Any:
        """In a thread: it waits for a server."""
        return await self.services.threads.run(work, *args, **options)

    def page(self, template: str, status: int = 200, **context: Any) -> Response:
        """A page as this person sees it."""
        actor = self.caller.actor
        note = self.console.sessions.read_note(self.request.cookies.get(NOTE_COOKIE, ""))
        shared = {
            "base": self.base,
            "static": f"{self.base}/static/{content_mark()}",
            "navigation": NAVIGATION,
            "here": section_of(self.request.url.path.removeprefix(self.base)),
            "who": {
                "person": actor.person,
                "role": actor.role,
                "name": actor.name,
                "way": self.session.way,
            },
            "may_act": self.has(Role.OPERATOR),
            "may_decide": self.has(Role.APPROVER),
            "token": self.console.sessions.form_token(self.session),
            "note": note,
            "live": "",
        }
        response = HTMLResponse(html(template, {**shared, **context}), status)
        if note is not None:
            response.delete_cookie(NOTE_COOKIE, path=self.base)
        return response

    def back_to(self, path: str, said: str = "", *, trouble: str = "") -> Response:
        """After a form: another page, which says once what became of it."""
        response = Response(status_code=303, headers={"Location": self.base + path})
        note = {"text": trouble or said, "trouble": bool(trouble)}
        if note["text"]:
            response.set_cookie(
                NOTE_COOKIE, self.console.sessions.signed_note(note), **self._cookie_options(NOTE_S)
            )
        return response

    def keep_session(self, response: Response, session: Session) -> None:
        keep_session(self.request, response, self.console.sessions, session)

    def _cookie_options(self, kept_s: int) -> dict[str, Any]:
        return cookie_options(self.request, kept_s)


Handle = Callable[[Visit], Awaitable[Response]]


@dataclass(frozen=True, slots=True)
class ConsoleRoute:
    method: str
    path: str
    #: The least role that may come here.
    role: Role
    handle: Handle
    #: Where a person is sent who asked for something impossible; empty: an error page.
    back: str = ""
    #: Its form holds the input of a transaction, which may be large.
    takes_input: bool = False


class Pages:
    """The pages and actions of one module."""

    def __init__(self) -> None:
        self.routes: list[ConsoleRoute] = []

    def page(self, path: str, *, role: Role = Role.VIEWER) -> Callable[[Handle], Handle]:
        return self._add("GET", path, role, "")

    def action(
        self, path: str, *, role: Role = Role.OPERATOR, back: str = "", takes_input: bool = False
    ) -> Callable[[Handle], Handle]:
        """A form is sent here. `back` is the page that shows what was impossible."""
        return self._add("POST", path, role, back, takes_input)

    def _add(
        self, method: str, path: str, role: Role, back: str, takes_input: bool = False
    ) -> Callable[[Handle], Handle]:
        def keep(handle: Handle) -> Handle:
            self.routes.append(ConsoleRoute(method, path, role, handle, back, takes_input))
            return handle

        return keep


def section_of(path: str) -> str:
    """The page of the navigation that a path belongs to."""
    first = path.strip("/").partition("/")[0]
    return BELONGS.get(first, f"/{first}")


def base_of(request: Request) -> str:
    """The path of the console as the browser sees it."""
    return str(request.scope["root_path"])


def cookie_options(request: Request, kept_s: int) -> dict[str, Any]:
    return {
        "max_age": kept_s,
        "path": base_of(request),
        "httponly": True,
        "samesite": "strict",
        "secure": request.url.scheme == "https",
    }


def keep_session(
    request: Request, response: Response, sessions: Sessions, session: Session
) -> None:
    kept_s = session.until_s - session.began_s
    response.set_cookie(COOKIE, sessions.cookie(session), **cookie_options(request, kept_s))


def with_query(path: str, values: Mapping[str, Any]) -> str:
    given = {name: value for name, value in values.items() if value not in (None, "")}
    return f"{path}?{urlencode(given, quote_via=quote)}" if given else path


def problem_text(problem: Problem) -> str:
    return str(problem.detail).removeprefix("The request is not valid. #/")
