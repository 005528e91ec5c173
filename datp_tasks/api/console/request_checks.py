"""What is checked of a request before a page sees it: where it comes from, and its form."""

from __future__ import annotations

import ipaddress
import re
from urllib.parse import parse_qsl, urlsplit

from fastapi import Request
from starlette.types import Scope

from datp_tasks.api.console.identity_file import Identity, checked_name, role_of
from datp_tasks.api.console.sessions import Session, SignedOut
from datp_tasks.api.problems import Problem, forbidden
from datp_tasks.settings import Settings

FORM_BYTES_MAX = 300_000
#: Beside the input of a form: its other fields.
AROUND_BYTES = 65_536
#: A byte of a text has up to so many in a form.
BYTES_OF_ONE = 3
FORM_FIELDS_MAX = 200
PREFIX = re.compile(r"(/[A-Za-z0-9_.~-]+){1,8}")


def vouched_for(request: Request, identity: Identity) -> Session | None:
    """Whom the proxy names, if the connection comes from it."""
    proxy = identity.proxy
    if proxy is None or not proxy.trusts(request.scope.get("datp_peer", "")):
        return None
    name = checked_name(_sole(request, proxy.name_header))
    groups = re.split(r"[,;\s]+", _sole(request, proxy.role_header))
    role = role_of(groups, proxy.roles)
    if name is None or role is None:
        return None
    return Session(
        id=f"proxy {name}",
        key_id="",
        person=name,
        role=str(role),
        way="proxy",
        began_s=0,
        until_s=0,
    )


def _sole(request: Request, header: str) -> str:
    """Of two, one may be what the proxy's own client has sent."""
    found = request.headers.getlist(header)
    return found[0] if len(found) == 1 else ""


def refuse_former(session: Session, identity: Identity) -> None:
    """Raise SignedOut for whom a provider vouched that the identity file does not name any more,
    or for a role that it gives to no group now."""
    given = identity.oidc.roles.values() if identity.oidc else ()
    if session.way == "oidc" and session.role not in given:
        raise SignedOut("The session has ended. Sign in again.")


def refuse_other_sites(request: Request) -> None:
    """A form comes from our own pages, whatever it says."""
    came = request.headers.get("sec-fetch-site")
    if came is not None:
        if came == "same-origin":
            return
    elif _host_of(request.headers.get("origin", "")) == request.headers.get("host"):
        return
    raise forbidden("This form was sent by a page of another site.")


def _host_of(origin: str) -> str:
    try:
        return urlsplit(origin).netloc
    except ValueError:
        return ""


async def form_of(
    request: Request, settings: Settings, *, takes_input: bool = False
) -> dict[str, str]:
    """The fields of a form; each once, except that of several the last one counts.

    With `takes_input` there is room for the largest input of a transaction.
    """
    bytes_max = min(FORM_BYTES_MAX, settings.input_bytes_max + AROUND_BYTES)
    if takes_input:
        bytes_max = BYTES_OF_ONE * settings.input_bytes_max + AROUND_BYTES
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != "application/x-www-form-urlencoded":
        raise Problem(415, "not-a-form", "Send a form of the console.")
    body = bytearray()
    async for chunk in request.stream():
        body += chunk
        if len(body) > bytes_max:
            raise Problem(
                413, "too-large", "The form is too large.", headers={"Connection": "close"}
            )
    try:
        pairs = parse_qsl(
            body.decode(), keep_blank_values=True, max_num_fields=FORM_FIELDS_MAX, errors="strict"
        )
    except ValueError:
        raise Problem(400, "request-invalid", "The form cannot be read.") from None
    return {name: value.replace("\r\n", "\n") for name, value in pairs if "\0" not in value}


def prefix_of(scope: Scope, proxies: tuple[str, ...]) -> str:
    """What a proxy that is believed has taken away from the front of the path."""
    if not proxies or not _is_one_of(scope.get("datp_peer", ""), proxies):
        return ""
    for name, value in scope["headers"]:
        if name == b"x-forwarded-prefix":
            text = value.decode("latin-1").rstrip("/")
            return text if PREFIX.fullmatch(text) else ""
    return ""


def _is_one_of(address: str, listed: tuple[str, ...]) -> bool:
    if "*" in listed or address in listed:
        return True
    try:
        found = ipaddress.ip_address(address)
        return any("/" in each and found in ipaddress.ip_network(each) for each in listed)
    except ValueError:
        return False
