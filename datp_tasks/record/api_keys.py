"""API keys: made once, shown once, kept as a keyed hash; and the limits of their owners.

A key is `datp_<id>_<secret><check>`. The id finds the row; the secret has 256 bits, so a quick
hash is right, and it is keyed with the server's pepper, so that a stolen table is of no use. So is
the check: a key that the server did not make is refused without asking the database.
"""

from __future__ import annotations

import base64
import hmac
import json
import re
import secrets
from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime
from hashlib import sha256
from typing import Any

from sqlalchemy import Connection, Engine

from datp_tasks.clock import Clock
from datp_tasks.errors import KeyInvalid, KeyUnknown, SettingsError
from datp_tasks.model.actor import Actor, Role
from datp_tasks.model.grants import Grants
from datp_tasks.record.operator_actions import note_action
from datp_tasks.record.queries import Queries

#: Keys from before there was a check have none.
KEY = re.compile(r"datp_([0-9a-f]{16})_([A-Za-z0-9_-]{43})([A-Za-z0-9_-]{8})?")
CHECK_CHARS = 8
OWNER = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.@-]{0,63}")
#: Alerts are signed with the secret of this one.
RESERVED = ("operator",)
PEPPER_CHARS_MIN = 32
NAME_CHARS_MAX = 100


class Query(Queries, topic="api_keys"):
    create: str
    find: str
    owners: str
    list_keys: str
    revoke: str
    note_used: str
    follow_pepper: str
    followed: str
    limits: str
    set_limits: str
    in_flight: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiKey:
    """A key without its secret."""

    id: str
    owner: str
    #: None: a client's, which sees and touches only what is its owner's.
    role: Role | None
    #: None: what is safe by default.
    grants: Grants | None
    name: str | None
    created_at: datetime
    expires_at: datetime | None
    revoked_at: datetime | None
    last_used_at: datetime | None

    def actor(self) -> Actor:
        """Who acts with it."""
        return Actor(
            name=f"key {self.id}",
            role=self.role,
            owner=self.owner,
            key_id=self.id,
            grants=self.grants,
        )


@dataclass(frozen=True, slots=True)
class NewKey:
    """A key that was just made; its text is never seen again."""

    key: ApiKey
    text: str

    def __repr__(self) -> str:
        return f"NewKey({self.key!r})"


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnerLimits:
    """What an owner may do; None is what the settings say."""

    requests_per_s: float | None = None
    burst_max: int | None = None
    in_flight_max: int | None = None


class KeyHash:
    """The keyed hash of keys. Without a good pepper there is none.

    While the pepper is changed there are two: what the one before it made is still known.
    """

    def __init__(self, pepper: str, previous: str = "") -> None:
        named = {"DATP_KEY_PEPPER": pepper}
        if previous:
            named["DATP_KEY_PEPPER_PREVIOUS"] = previous
        for name, text in named.items():
            if len(text) < PEPPER_CHARS_MIN:
                raise SettingsError(
                    f"{name} must be at least {PEPPER_CHARS_MIN} characters that an attacker "
                    "cannot guess, and the same for every process that makes or checks API keys. "
                    "`openssl rand -base64 48` makes one; `datp up` keeps its own."
                )
        self._pepper = pepper.encode()
        self._previous = previous.encode()

    def check(self, text: str) -> str:
        """The end of a key, by which the server knows its own."""
        return _check(self._pepper, text)

    def is_own(self, text: str, check: str) -> bool:
        """Whether one of the peppers gave a key this end."""
        is_right = hmac.compare_digest(check, _check(self._pepper, text))
        if self._previous:
            is_right |= hmac.compare_digest(check, _check(self._previous, text))
        return is_right

    def __call__(self, text: str) -> str:
        return hmac.digest(self._pepper, text.encode(), "sha256").hex()

    def matches(self, text: str, stored: str) -> bool:
        """Whether the text has this hash under one of the peppers."""
        is_right = hmac.compare_digest(self(text), stored)
        if self._previous:
            before = hmac.new(self._previous, text.encode(), sha256).hexdigest()
            is_right |= hmac.compare_digest(before, stored)
        return is_right


def _check(pepper: bytes, text: str) -> str:
    made = hmac.new(pepper, b"check " + text.encode(), sha256).digest()
    return base64.urlsafe_b64encode(made).decode()[:CHECK_CHARS]


class ApiKeys:
    def __init__(
        self, engine: Engine, clock: Clock, pepper: str, previous_pepper: str = ""
    ) -> None:
        self._engine = engine
        self._clock = clock
        self.hash = KeyHash(pepper, previous_pepper)

    def create(
        self,
        owner: str,
        role: Role | None = None,
        *,
        actor: Actor,
        grants: Grants | None = None,
        name: str | None = None,
        expires_in_s: float | None = None,
    ) -> NewKey:
        """Make a key. Its text is in the answer, and nowhere else."""
        if not OWNER.fullmatch(owner):
            raise KeyInvalid(
                f"an owner is 1 to 64 letters, digits, '_', '.', '@' or '-', was {owner!r:.100}"
            )
        if owner in RESERVED:
            raise KeyInvalid(f"{owner} is the system's own name; choose another for this owner")
        if name is not None and not (name.isprintable() and len(name) <= NAME_CHARS_MAX):
            raise KeyInvalid(f"the name of a key has at most {NAME_CHARS_MAX} printable characters")
        text = f"datp_{secrets.token_hex(8)}_{secrets.token_urlsafe(32)}"
        text += self.hash.check(text)
        values = {
            "id": text.split("_")[1],
            "owner": owner,
            # As releases before roles read it; to them, less than an admin is a client.
            "scope": "operator" if role is Role.ADMIN else "client",
            "role": role,
            "grants": None if grants is None else json.dumps(grants.texts),
            "name": name,
            "secret_hash": self.hash(text),
            "expires_in_s": expires_in_s,
            "now": self._now(),
        }
        with self._engine.begin() as connection:
            row = connection.exec_driver_sql(Query.create, values).one()
            details = {
                "owner": owner,
                "role": role,
                "grants": None if grants is None else list(grants.texts),
                "name": name,
            }
            self._audit(connection, actor, "key.create", row.id, details)
        return NewKey(_key(row), text)

    def can_be(self, text: str) -> bool:
        """Whether it looks like a key of this server; without asking the database."""
        match = KEY.fullmatch(text)
        if match is None:
            return False
        check = match.group(3)
        return check is None or self.hash.is_own(text[:-CHECK_CHARS], check)

    def id_in(self, text: str) -> str | None:
        """The id that a text names, if it has the form of a key."""
        match = KEY.fullmatch(text)
        return match.group(1) if match else None

    def verify(self, text: str) -> ApiKey | None:
        """The live key with this text, or None, after the same work whatever is wrong."""
        match = KEY.fullmatch(text)
        wanted = match.group(1) if match else ""
        with self._engine.connect() as connection:
            row = connection.exec_driver_sql(Query.find, {"id": wanted, "now": self._now()}).first()
        stored = row.secret_hash if row is not None else "0" * 64
        is_right = self.hash.matches(text, stored)
        if row is None or not is_right or not row.is_live:
            return None
        if stored != (new := self.hash(text)):
            self._follow_pepper(row.id, stored, new)
        return _key(row)

    def _follow_pepper(self, key_id: str, stored: str, new: str) -> None:
        """It was made under the previous pepper; from now on it needs only the current one."""
        values = {"id": key_id, "stored": stored, "secret_hash": new, "now": self._now()}
        with self._engine.begin() as connection:
            connection.exec_driver_sql(Query.follow_pepper, values)

    def followed(self) -> frozenset[str]:
        """Ids of keys that `can_be` does not know once the pepper that made them is taken away."""
        with self._engine.connect() as connection:
            values = {"now": self._now()}
            return frozenset(connection.exec_driver_sql(Query.followed, values).scalars())

    def live_key(self, key_id: str) -> ApiKey | None:
        """A key by its id, if it may be used now."""
        with self._engine.connect() as connection:
            row = connection.exec_driver_sql(Query.find, {"id": key_id, "now": self._now()}).first()
        return _key(row) if row is not None and row.is_live else None

    def note_used(self, key_id: str) -> None:
        with self._engine.begin() as connection:
            connection.exec_driver_sql(Query.note_used, {"id": key_id, "now": self._now()})

    def owners(self, key_ids: Collection[str]) -> dict[str, str]:
        """Whose the keys are that are stored."""
        with self._engine.connect() as connection:
            rows = connection.exec_driver_sql(Query.owners, {"ids": sorted(key_ids)})
            return {row.id: row.owner for row in rows}

    def list(
        self,
        owner: str | None = None,
        *,
        after: tuple[str, str] | None = None,
        rows_max: int = 1_000,
    ) -> list[ApiKey]:
        """Every key, or those of an owner, oldest first; also those that are revoked.

        `after` is the time and the id of the last of the page before.
        """
        after_at, after_id = after or (None, "")
        values = {"owner": owner, "limit": rows_max, "after": after_at, "after_id": after_id}
        with self._engine.connect() as connection:
            rows = connection.exec_driver_sql(Query.list_keys, values)
            return [_key(row) for row in rows]

    def one(self, key_id: str) -> ApiKey:
        """A key by its id, live or not, or KeyUnknown."""
        values = {"id": key_id, "now": self._now()}
        with self._engine.connect() as connection:
            row = connection.exec_driver_sql(Query.find, values).first()
        if row is None:
            raise KeyUnknown(f"there is no API key {key_id!r:.100}")
        return _key(row)

    def revoke(self, key_id: str, *, actor: Actor, reason: str | None = None) -> bool:
        """End a key; False if it was revoked before, KeyUnknown if there is none.

        Processes that have just seen it may know it for `key_cache_s` more.
        """
        values = {"id": key_id, "now": self._now()}
        with self._engine.begin() as connection:
            if connection.exec_driver_sql(Query.find, values).first() is None:
                raise KeyUnknown(f"there is no API key {key_id!r:.100}")
            is_new = connection.exec_driver_sql(Query.revoke, values).rowcount > 0
            if is_new:
                self._audit(connection, actor, "key.revoke", key_id, None, reason)
        return is_new

    # Limits.

    def limits(self, owner: str) -> OwnerLimits:
        with self._engine.connect() as connection:
            row = connection.exec_driver_sql(Query.limits, {"owner": owner}).first()
        if row is None:
            return OwnerLimits()
        return OwnerLimits(
            requests_per_s=row.requests_per_s,
            burst_max=row.burst_max,
            in_flight_max=row.in_flight_max,
        )

    def set_limits(self, owner: str, limits: OwnerLimits, *, actor: Actor) -> None:
        if not OWNER.fullmatch(owner):
            raise KeyInvalid(f"there can be no owner {owner!r:.100}")
        values = {
            "requests_per_s": limits.requests_per_s,
            "burst_max": limits.burst_max,
            "in_flight_max": limits.in_flight_max,
        }
        with self._engine.begin() as connection:
            given = {"owner": owner, "now": self._now(), **values}
            connection.exec_driver_sql(Query.set_limits, given)
            self._audit(connection, actor, "owner.limit", owner, values)

    def in_flight(self, owner: str, *, count_max: int) -> int:
        """How many transactions and batches of the owner have not ended; up to a limit each."""
        with self._engine.connect() as connection:
            values = {"owner": owner, "limit": count_max}
            return int(connection.exec_driver_sql(Query.in_flight, values).scalar_one())

    def _audit(
        self,
        connection: Connection,
        actor: Actor,
        action: str,
        subject: str,
        details: dict[str, Any] | None,
        reason: str | None = None,
    ) -> None:
        note_action(
            connection,
            actor=actor,
            action=action,
            subject=subject,
            reason=reason,
            details=details,
            now=self._now(),
        )

    def _now(self) -> datetime | None:
        return self._clock.now()


def _role(row: Any) -> Role | None:
    """A process of an older release may have made it meanwhile, and that knows no roles."""
    if row.role is not None:
        return Role(row.role)
    return Role.ADMIN if row.scope == "operator" else None


def _key(row: Any) -> ApiKey:
    return ApiKey(
        id=row.id,
        owner=row.owner,
        role=_role(row),
        grants=None if row.grants is None else Grants(tuple(json.loads(row.grants))),
        name=row.name,
        created_at=row.created_at,
        expires_at=row.expires_at,
        revoked_at=row.revoked_at,
        last_used_at=row.last_used_at,
    )
