"""Keys of requests that are done once, and the answers that were given under them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import Engine

from datp_tasks.clock import Clock
from datp_tasks.record.queries import Queries

#: A process that has not renewed its hold by then has died.
HOLD_S = 60
#: So a renewal may fail once, or wait for a connection for long, and the hold lasts.
RENEW_S = HOLD_S / 4
#: A client that repeats a request after a day asks for something new.
KEEP_HOURS = 24


class Query(Queries, topic="idempotency"):
    begin: str
    find: str
    renew: str
    keep: str
    release: str
    drop_old: str


@dataclass(frozen=True, slots=True)
class KeyTaken:
    """The caller is the one who does the work."""

    owner: str
    key: str
    #: Names this hold, however often it is renewed: who came after it was over has another.
    begun_at: datetime


@dataclass(frozen=True, slots=True)
class KeptAnswer:
    """The answer of the first request."""

    status: int
    headers: Sequence[tuple[str, str]]
    body: str | None
    #: The transaction that the answer showed, if it was one.
    tx_id: str | None


class KeyOfAnother:
    """The key belongs to another request."""


class KeyInUse:
    """The first request is not over."""


class IdempotencyKeys:
    def __init__(self, engine: Engine, clock: Clock) -> None:
        self._engine = engine
        self._clock = clock

    def begin(
        self, owner: str, key: str, request_hash: str
    ) -> KeyTaken | KeptAnswer | KeyOfAnother | KeyInUse:
        names = {"owner": owner, "key": key}
        limits = {"hold_s": HOLD_S, "keep_hours": KEEP_HOURS, "now": self._clock.now()}
        with self._engine.begin() as connection:
            row = connection.exec_driver_sql(
                Query.begin, {**names, "request_hash": request_hash, **limits}
            ).first()
            if row is not None:
                return KeyTaken(owner, key, row.begun_at)
            row = connection.exec_driver_sql(Query.find, names).first()
        # It was released between the two statements: the client asks again.
        if row is None:
            return KeyInUse()
        if row.request_hash != request_hash:
            return KeyOfAnother()
        if row.status is None:
            return KeyInUse()
        return KeptAnswer(row.status, tuple(json.loads(row.headers).items()), row.body, row.tx_id)

    def renew(self, begun: KeyTaken) -> bool:
        """The work goes on: hold the key for longer. False: another request has it by now."""
        values = {"owner": begun.owner, "key": begun.key, "begun_at": begun.begun_at}
        limits = {"hold_s": HOLD_S, "now": self._clock.now()}
        with self._engine.begin() as connection:
            return connection.exec_driver_sql(Query.renew, {**values, **limits}).rowcount > 0

    def keep(self, begun: KeyTaken, answer: KeptAnswer) -> bool:
        """False: another request has the key by now."""
        values = {
            "owner": begun.owner,
            "key": begun.key,
            "begun_at": begun.begun_at,
            "status": answer.status,
            "headers": json.dumps(dict(answer.headers)),
            "body": answer.body,
            "tx_id": answer.tx_id,
        }
        with self._engine.begin() as connection:
            return connection.exec_driver_sql(Query.keep, values).rowcount > 0

    def release(self, begun: KeyTaken) -> None:
        """Nothing was done: the same key can be used again."""
        values = {"owner": begun.owner, "key": begun.key, "begun_at": begun.begun_at}
        with self._engine.begin() as connection:
            connection.exec_driver_sql(Query.release, values)

    def drop_old(self, *, rows_max: int) -> int:
        """Forget what is older than a client may repeat; how many."""
        values = {"keep_hours": KEEP_HOURS, "limit": rows_max, "now": self._clock.now()}
        with self._engine.begin() as connection:
            return connection.exec_driver_sql(Query.drop_old, values).rowcount
