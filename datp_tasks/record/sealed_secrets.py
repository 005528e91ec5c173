"""Secrets that parameters of pipelines name: `{secret: NAME}`. Values rest sealed, always."""

from __future__ import annotations

import re
import threading
import time
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import Connection, Engine

from datp_tasks.clock import Clock
from datp_tasks.errors import SecretUnknown, SettingsError
from datp_tasks.model.actor import Actor
from datp_tasks.record.database import translate_outage
from datp_tasks.record.operator_actions import note_action
from datp_tasks.record.queries import Queries
from datp_tasks.record.sql_errors import OperationalError
from datp_tasks.seals.keyring import KeyRing, needed

TABLE, COLUMN = "sealed_secret", "sealed"
NAME = re.compile(r"[A-Za-z][A-Za-z0-9_.-]{0,63}")
VALUE_CHARS_MAX = 16_384
LIST_MAX = 10_000
#: How long a worker goes on with a value that it has read: so soon a new one is used everywhere.
KEPT_S = 15.0


class Query(Queries, topic="sealed_secrets"):
    put: str
    find: str
    list_secrets: str
    remove: str


@dataclass(frozen=True, slots=True)
class SecretRow:
    """A secret without its value."""

    name: str
    key_id: str
    created_at: datetime
    changed_at: datetime


class SealedSecrets:
    def __init__(self, engine: Engine, clock: Clock, ring: KeyRing | None) -> None:
        self._engine = engine
        self._clock = clock
        self._ring = ring
        self._lock = threading.Lock()
        self._kept: dict[str, tuple[float, str]] = {}

    def value(self, name: str) -> str:
        """For a step that is about to run. While PostgreSQL is unavailable the last value is."""
        until_s, kept = self._kept.get(name, (0.0, None))
        if kept is not None and time.monotonic() < until_s:
            return kept
        try:
            found = self._read(name)
        except OperationalError:
            if kept is None:
                raise
            return kept
        with self._lock:
            self._kept[name] = (time.monotonic() + KEPT_S, found)
        return found

    def _read(self, name: str) -> str:
        ring = needed(self._ring, f"the secret {name!r}")
        with self._engine.connect() as connection:
            sealed = connection.exec_driver_sql(Query.find, {"name": name}).scalar()
        if sealed is None:
            raise SecretUnknown(f"there is no secret {name!r}: `datp secrets set {name}` stores it")
        return ring.open(sealed, TABLE, COLUMN, name)

    def put(self, name: str, value: str, *, actor: Actor, must_exist: bool = False) -> bool:
        """Store a value; whether the name is new. The audit table keeps who did it."""
        ring = needed(self._ring, f"the secret {name!r}")
        _check(name, value)
        values = {
            "name": name,
            "sealed": ring.seal(value, TABLE, COLUMN, name),
            "now": self._clock.now(),
        }
        with translate_outage(), self._engine.begin() as connection:
            is_new = bool(connection.exec_driver_sql(Query.put, values).scalar_one())
            if is_new and must_exist:
                raise SecretUnknown(f"there is no secret {name!r} that could be rotated")
            self._note(connection, actor, "secret.set" if is_new else "secret.rotate", name)
        return is_new

    def remove(self, name: str, *, actor: Actor) -> None:
        with translate_outage(), self._engine.begin() as connection:
            if connection.exec_driver_sql(Query.remove, {"name": name}).rowcount == 0:
                raise SecretUnknown(f"there is no secret {name!r:.100}")
            self._note(connection, actor, "secret.delete", name)

    def list(self) -> list[SecretRow]:
        with translate_outage(), self._engine.connect() as connection:
            rows = connection.exec_driver_sql(Query.list_secrets, {"limit": LIST_MAX})
            return [SecretRow(*row) for row in rows]

    def _note(self, connection: Connection, actor: Actor, action: str, name: str) -> None:
        now = self._clock.now()
        note_action(connection, actor=actor, action=action, subject=name, reason=None, now=now)


def _check(name: str, value: str) -> None:
    if not NAME.fullmatch(name):
        raise SettingsError(
            f"a secret's name is 1 to 64 letters, digits, '_', '.' or '-', was {name!r:.100}"
        )
    if not value or len(value) > VALUE_CHARS_MAX or "\x00" in value:
        raise SettingsError(f"a secret has 1 to {VALUE_CHARS_MAX} characters and no U+0000")
