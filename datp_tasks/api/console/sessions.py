"""Sessions of the console: a signed cookie that names who is signed in, and never holds a key.

What a person may do is asked for anew: a key that is revoked ends its sessions after
`key_cache_s`. Signing out forgets the cookie; a copy of it ends when it is not used any more.
"""

from __future__ import annotations

import base64
import hmac
import json
import secrets
import time
from collections import OrderedDict
from dataclasses import dataclass, replace
from hashlib import sha256
from typing import Any

from fastapi import Request

from datp_tasks.api.access import Caller
from datp_tasks.api.services import Services
from datp_tasks.errors import DatpError
from datp_tasks.model.actor import Actor, Role
from datp_tasks.record.api_keys import ApiKey
from datp_tasks.record.database import translate_outage
from datp_tasks.settings import Settings

#: A session that is not used ends after so long; one that is used is renewed.
IDLE_S = 3_600
#: A working day: then the person signs in again.
SESSION_S = 43_200
COOKIE = "datp_console"
#: Keys that this process remembers to be good.
KNOWN_MAX = 1_000
#: The clock of the database is asked so often; between, the time since then is added.
CLOCK_S = 10.0
COOKIE_CHARS_MAX = 2_000


class SignedOut(DatpError):
    """There is no session, or it has ended; the text says which."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Session:
    """What the cookie says."""

    id: str
    #: The id of an API key; empty for a person whom another system vouched for.
    key_id: str
    #: Of such a person.
    person: str
    role: str
    #: `key`, `oidc` or `proxy`.
    way: str
    began_s: int
    until_s: int


class Signer:
    """Signs texts for one purpose; what was signed for another is refused."""

    def __init__(self, pepper: str, purpose: str) -> None:
        self._key = hmac.new(pepper.encode(), f"console {purpose}".encode(), sha256).digest()

    def mark(self, text: str) -> str:
        made = hmac.new(self._key, text.encode(), sha256).digest()
        return base64.urlsafe_b64encode(made).decode().rstrip("=")

    def sign(self, content: dict[str, Any]) -> str:
        packed = json.dumps(content, separators=(",", ":")).encode()
        text = base64.urlsafe_b64encode(packed).decode().rstrip("=")
        return f"{text}.{self.mark(text)}"

    def read(self, signed: str) -> dict[str, Any] | None:
        """What was signed; None if it was not, or not by this server."""
        text, _, mark = signed.partition(".")
        if len(signed) > COOKIE_CHARS_MAX or not signed.isascii():
            return None
        if not hmac.compare_digest(mark, self.mark(text)):
            return None
        padded = text + "=" * (-len(text) % 4)
        found = json.loads(base64.urlsafe_b64decode(padded))
        return found if isinstance(found, dict) else None


class SessionClock:
    """The time of the database, asked for now and then: no clock of this machine decides."""

    def __init__(self, services: Services) -> None:
        self._services = services
        self._asked_s = self._then_s = 0.0

    async def now_s(self) -> int:
        if not self._asked_s or time.monotonic() - self._asked_s > CLOCK_S:
            now = await self._services.admission.threads.run(self._ask)
            self._asked_s, self._then_s = time.monotonic(), now
        return int(self._then_s + time.monotonic() - self._asked_s)

    def _ask(self) -> float:
        with translate_outage():
            return self._services.transactions.record.server_now().timestamp()


class Sessions:
    def __init__(self, services: Services, settings: Settings) -> None:
        self._services = services
        self._settings = settings
        self._signer = Signer(settings.key_pepper, "session")
        self._tokens = Signer(settings.key_pepper, "form")
        self._notes = Signer(settings.key_pepper, "note")
        self.clock = SessionClock(services)
        self._known: OrderedDict[str, tuple[float, Actor | None]] = OrderedDict()

    async def begin(self, actor: Actor, way: str) -> Session:
        """For one who has just shown who it is."""
        now_s = await self.clock.now_s()
        return Session(
            id=secrets.token_urlsafe(16),
            key_id=actor.key_id or "",
            person="" if actor.key_id else actor.person,
            role="" if actor.key_id else str(actor.role),
            way=way,
            began_s=now_s,
            until_s=now_s + IDLE_S,
        )

    def cookie(self, session: Session) -> str:
        return self._signer.sign({name: getattr(session, name) for name in Session.__slots__})

    async def of_cookie(self, cookie: str) -> Session:
        """The session that a cookie names, or SignedOut."""
        found = self._signer.read(cookie)
        if found is None:
            raise SignedOut("")
        try:
            session = Session(**found)
        except TypeError:
            # Another release made it.
            raise SignedOut("") from None
        if session.until_s <= await self.clock.now_s():
            raise SignedOut("The session has ended. Sign in again.")
        return session

    async def renewed(self, session: Session) -> Session | None:
        """A session that goes on for longer, once half of its time is over; else None."""
        now_s = await self.clock.now_s()
        last_s = session.began_s + SESSION_S
        until_s = min(now_s + IDLE_S, last_s)
        if session.until_s - now_s > IDLE_S / 2 or until_s <= session.until_s:
            return None
        return replace(session, until_s=until_s)

    async def is_over(self, session: Session) -> bool:
        """Its time has passed. A page that stays open is no use of it; a proxy decides about its
        own people."""
        return session.way != "proxy" and session.until_s <= await self.clock.now_s()

    async def caller(self, session: Session, request: Request) -> Caller:
        """Who acts, with the role and the grants of now, or SignedOut."""
        actor = await self._actor(session)
        if actor is None or actor.owner is None:
            raise SignedOut("The key of this session has expired or was revoked.")
        address = request.client.host if request.client else ""
        made = replace(actor, request_id=request.state.request_id, address=address)
        return Caller(actor.owner, made)

    def form_token(self, session: Session) -> str:
        """What a form of this session carries, so that no other page can send it."""
        return self._tokens.mark(session.id)

    def is_form_token(self, session: Session, token: str) -> bool:
        return hmac.compare_digest(token.encode(), self.form_token(session).encode())

    def signed_note(self, note: dict[str, Any]) -> str:
        return self._notes.sign(note)

    def read_note(self, cookie: str) -> dict[str, Any] | None:
        return self._notes.read(cookie) if cookie else None

    async def _actor(self, session: Session) -> Actor | None:
        if not session.key_id:
            return person(session.way, session.person, Role(session.role))
        until_s, known = self._known.get(session.key_id, (0.0, None))
        if until_s > time.monotonic():
            return known
        until_s = time.monotonic() + self._settings.key_cache_s
        found = await self._services.admission.threads.run(self._live_key, session.key_id)
        actor = None if found is None else found.actor()
        self._known[session.key_id] = (until_s, actor)
        while len(self._known) > KNOWN_MAX:
            self._known.popitem(last=False)
        return actor

    def _live_key(self, key_id: str) -> ApiKey | None:
        with translate_outage():
            return self._services.callers.keys.live_key(key_id)


def person(way: str, name: str, role: Role) -> Actor:
    """Whom another system vouched for; with a key of the same name it is one person."""
    return Actor(name=f"{way} {name}", role=role, owner=name)
