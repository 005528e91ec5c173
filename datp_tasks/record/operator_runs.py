"""Audits and erasures that operators start over HTTP: what was ordered, and how far each is."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any, Literal

from sqlalchemy import Connection, Engine

from datp_tasks.clock import Clock
from datp_tasks.errors import DatpError
from datp_tasks.model.actor import Actor
from datp_tasks.model.notes import clean_note
from datp_tasks.model.payload import encode
from datp_tasks.record.queries import Queries

RunKind = Literal["audit", "erasure"]
#: Ids are handed out upwards; what a page begins before, if nothing is named.
NEWEST = 2**62


class Query(Queries, topic="operator_runs"):
    add: str
    running_kinds: str
    running: str
    one: str
    page: str
    hold: str
    erased_count: str
    set_progress: str
    end: str


class RunUnderWay(DatpError):
    """One of its kind is running, and there is one at a time."""


class RunState(StrEnum):
    RUNNING = "running"
    DONE = "done"
    FAILED = "failed"


@dataclass(frozen=True, slots=True, kw_only=True)
class RunOrder:
    """What is to be done, and on whose behalf."""

    kind: RunKind
    params: Mapping[str, Any]
    progress: Mapping[str, Any]
    actor: Actor
    reason: str | None = None
    subject: Mapping[str, Any] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class OperatorRun:
    id: int
    kind: RunKind
    state: RunState
    params: Mapping[str, Any]
    subject: Mapping[str, Any] | None
    progress: Mapping[str, Any]
    #: The same, as it was read.
    progress_text: str
    reason: str | None
    actor: Actor
    note: str | None
    created_at: datetime
    ended_at: datetime | None


class OperatorRunStore:
    def __init__(self, engine: Engine, clock: Clock) -> None:
        self._engine = engine
        self._clock = clock

    def writing(self) -> AbstractContextManager[Connection]:
        """Everything that is written inside is one commit."""
        return self._engine.begin()

    def add(self, connection: Connection, order: RunOrder) -> int:
        """Its id. RunUnderWay is raised if one of its kind is running."""
        actor = order.actor
        requester = {
            "name": clean_note(actor.name),
            "keyId": actor.key_id,
            "requestId": actor.request_id,
            "address": actor.address,
        }
        values = {
            "kind": order.kind,
            "params": encode(dict(order.params)),
            "subject": None if order.subject is None else encode(dict(order.subject)),
            "progress": encode(dict(order.progress)),
            "reason": None if order.reason is None else clean_note(order.reason),
            "requester": encode(requester),
            "now": self._clock.now(),
        }
        row = connection.exec_driver_sql(Query.add, values).first()
        if row is None:
            raise RunUnderWay(
                f"an {order.kind} is running, and there is one at a time: "
                f"GET /v1/{order.kind}s says how far it is. Start this one when it is over"
            )
        return int(row.id)

    def one(self, kind: RunKind, run_id: int) -> OperatorRun | None:
        with self._engine.connect() as connection:
            row = connection.exec_driver_sql(Query.one, {"kind": kind, "id": run_id}).first()
            return None if row is None else _run(row)

    def page(self, kind: RunKind, *, before: int | None, rows_max: int) -> list[OperatorRun]:
        values = {"kind": kind, "before": before or NEWEST, "limit": rows_max}
        with self._engine.connect() as connection:
            return [_run(row) for row in connection.exec_driver_sql(Query.page, values)]

    def running_kinds(self) -> list[RunKind]:
        with self._engine.connect() as connection:
            return [row.kind for row in connection.exec_driver_sql(Query.running_kinds)]

    @contextmanager
    def held(self, kind: RunKind) -> Iterator[OperatorRun | None]:
        """The one that is running, and no other process works on it. None: there is none, or
        another process does. A process that dies lets go of it."""
        with self._engine.begin() as connection:
            is_held = connection.exec_driver_sql(Query.hold, {"kind": kind}).scalar_one()
            found = is_held and connection.exec_driver_sql(Query.running, {"kind": kind}).first()
            yield _run(found) if found else None

    def erased_count(self, run: OperatorRun) -> int:
        """How many transactions it has erased, as the audit says."""
        values = {"id": run.id, "start": f"erasure {run.id}"}
        with self._engine.connect() as connection:
            return int(connection.exec_driver_sql(Query.erased_count, values).scalar_one())

    def set_progress(
        self, run: OperatorRun, before: Mapping[str, Any], progress: Mapping[str, Any]
    ) -> bool:
        """False: it is not as far as `before` says (another process got further), or over."""
        values = {
            "id": run.id,
            "before": _stored(run, before),
            "progress": encode(dict(progress)),
        }
        with self._engine.begin() as connection:
            return connection.exec_driver_sql(Query.set_progress, values).rowcount == 1

    def end(
        self,
        run: OperatorRun,
        state: RunState,
        before: Mapping[str, Any],
        progress: Mapping[str, Any],
        note: str | None,
    ) -> bool:
        """False as `set_progress`."""
        values = {
            "id": run.id,
            "before": _stored(run, before),
            "state": str(state),
            "progress": encode(dict(progress)),
            "note": None if note is None else clean_note(note),
            "now": self._clock.now(),
        }
        with self._engine.begin() as connection:
            return connection.exec_driver_sql(Query.end, values).rowcount == 1


def _stored(run: OperatorRun, progress: Mapping[str, Any]) -> str:
    """How SQL has it: as we write it, or as it was read, which another release may have written."""
    return run.progress_text if progress is run.progress else encode(dict(progress))


def _run(row: Any) -> OperatorRun:
    by = json.loads(row.requester)
    actor = Actor(
        name=by["name"], key_id=by["keyId"], request_id=by["requestId"], address=by["address"]
    )
    return OperatorRun(
        id=row.id,
        kind=row.kind,
        state=RunState(row.state),
        params=json.loads(row.params),
        subject=None if row.subject is None else json.loads(row.subject),
        progress=json.loads(row.progress),
        progress_text=row.progress,
        reason=row.reason,
        actor=actor,
        note=row.note,
        created_at=row.created_at,
        ended_at=row.ended_at,
    )
