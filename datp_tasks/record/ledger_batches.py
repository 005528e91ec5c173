"""Batches: stored in commit order, begun under a claim, ended by compare-and-set, and observed.

A batch is accepted when its row is committed. `begin` commits before anything is sent; `finish`
counts only for the attempt that is still the current one; what the ledger itself says (`record`)
is a fact, whichever process saw it, but never takes back what is final.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import groupby
from typing import Any

from sqlalchemy import Connection
from sqlalchemy.exc import IntegrityError

from datp_tasks.errors import (
    BatchConflict,
    BatchLimit,
    BatchUnknown,
    LedgerError,
    ServiceUnknown,
)
from datp_tasks.model.actor import Actor
from datp_tasks.model.ledger_batch import FINAL_STATES, BatchState
from datp_tasks.model.payload import encode
from datp_tasks.record.alerts import Alerts
from datp_tasks.record.ledger_sql import Sql, tried_again
from datp_tasks.record.ledger_types import (
    UNSEEN,
    Asked,
    AttemptEnd,
    BatchAttempt,
    Begun,
    Finished,
    LedgerBatch,
    Move,
    NewBatch,
    SeenService,
    Service,
    Sighting,
    Stored,
    Work,
    asked_from_row,
    attempt_from_row,
    batch_from_row,
    begun_from_row,
    finished_from_rows,
    service_values,
)
from datp_tasks.record.operator_actions import note_action
from datp_tasks.record.queries import Queries
from datp_tasks.settings import Settings

#: An owner that fills the line of a ledger service is told so before the others wait behind it.
OWNER_BATCHES_MAX = 10_000
#: Kinds of alerts. The first names a service, the others a batch.
DELAYED_ALERT = "ledger-delayed"
REFUSED_ALERT = "ledger-batch-refused"
PARKED_ALERT = "ledger-batch-parked"
TWICE_ALERT = "ledger-batch-twice"
ANOMALY_ALERT = "ledger-batch-anomaly"
#: A fork of a ledger can undo a batch for some minutes after its end.
RECHECK_S = 600.0


class Query(Queries, topic="ledger_batches"):
    add_service: str
    services: str
    give_numbers: str
    known: str
    open_counts: str
    store: str
    note_due: str
    begin: str
    finish: str
    take_up: str
    record: str
    note_late_commit: str
    find: str
    payload: str
    list_batches: str
    attempts: str
    sightings: str


def subject_of(service_id: str, batch_id: str) -> str:
    """How alerts name a batch."""
    return f"{service_id}/{batch_id}"


class BatchStore:
    def __init__(
        self, sql: Sql, alerts: Alerts, settings: Settings, *, drops_duplicates: Sequence[str]
    ) -> None:
        """`drops_duplicates`: kinds of ledgers that execute a batch that comes twice once."""
        self._sql = sql
        self._alerts = alerts
        self._settings = settings
        self._drops_duplicates = list(drops_duplicates)

    # The way in.

    def add_service(
        self, service: Service, by: Actor | None = None, reason: str = "", was: SeenService = UNSEEN
    ) -> bool:
        """Make or change a service; False if it exists with another kind, or is not as seen."""
        values = service_values(service, was)
        with self._sql.transaction() as connection:
            is_done = bool(self._sql.rows(connection, Query.add_service, values))
            if is_done and by is not None:
                note_action(
                    connection,
                    actor=by,
                    action="service.add",
                    subject=service.service_id,
                    reason=reason or None,
                    details={name: values[name] for name in ("kind", "url", "secret")},
                )
        return is_done

    def services(
        self, names: Sequence[str] | None = None, *, after: str = "", rows_max: int = 100_000
    ) -> list[Service]:
        values = {"services": names if names is None else [*names], "after": after}
        return [
            Service(service_id=row.service_id, kind=row.kind, url=row.url, secret=row.secret)
            for row in self._sql.run(Query.services, values | {"limit": rows_max})
        ]

    def store_many(self, batches: Sequence[NewBatch]) -> list[Stored | LedgerError]:
        """Commit batches; of each service in the order given. All are stored, or an error."""
        by_service = sorted(enumerate(batches), key=lambda pair: pair[1].service_id)
        answers: dict[int, Stored | LedgerError] = {}

        def store() -> None:
            with self._sql.transaction() as connection:
                for service_id, group in groupby(by_service, lambda pair: pair[1].service_id):
                    numbers, new = zip(*group, strict=True)
                    stored = self._store(connection, service_id, new)
                    answers.update(zip(numbers, stored, strict=True))

        tried_again(store)
        return [answers[number] for number in range(len(batches))]

    def stored_before(self, batch: NewBatch) -> Stored | LedgerError | None:
        """The first answer to a batch; None if the service does not have it."""
        values = {"service": batch.service_id, "batches": [batch.batch_id]}
        for row in self._sql.run(Query.known, values):
            same = row.fingerprint == _fingerprint(batch)
            return _again(batch, row.seq, BatchState(row.state), same)
        return None

    def _store(
        self, connection: Connection, service_id: str, batches: Sequence[NewBatch]
    ) -> list[Stored | LedgerError]:
        values: dict[str, Any] = {"service": service_id, "count": 0}
        rows = self._sql.rows(connection, Query.give_numbers, {**values, "count": len(batches)})
        if not rows:
            raise ServiceUnknown(f"there is no ledger service {service_id!r}")
        # The service is locked now, and this statement sees what was committed before.
        names = {"service": service_id, "batches": [each.batch_id for each in batches]}
        known = {row.batch_id: row for row in self._sql.rows(connection, Query.known, names)}
        counts = self._open_counts(connection, service_id, {each.owner for each in batches})
        first = rows[0].last_seq - len(batches) + 1
        answers: list[Stored | LedgerError] = []
        new: dict[str, tuple[int, NewBatch]] = {}
        for seq, batch in enumerate(batches, first):
            earlier = known.get(batch.batch_id)
            twin = new.get(batch.batch_id)
            if earlier is not None:
                same = earlier.fingerprint == _fingerprint(batch)
                answers.append(_again(batch, earlier.seq, BatchState(earlier.state), same))
            elif twin is not None:
                same = _fingerprint(twin[1]) == _fingerprint(batch)
                answers.append(_again(batch, twin[0], BatchState.NEW, same))
            elif counts[batch.owner] >= OWNER_BATCHES_MAX:
                answers.append(_too_many(batch, OWNER_BATCHES_MAX))
            else:
                counts[batch.owner] += 1
                new[batch.batch_id] = (seq, batch)
                answers.append(Stored(service_id, batch.batch_id, seq, BatchState.NEW))
        if new:
            self._sql.rows(connection, Query.store, _columns(service_id, new))
            self._sql.rows(connection, Query.note_due, {"service": service_id})
            _note(connection, [batch for _, batch in new.values()])
        return answers

    def _open_counts(
        self, connection: Connection, service_id: str, owners: set[str]
    ) -> Counter[str]:
        """What each owner has in this line; one that is at its limit need not be counted on."""
        limit = OWNER_BATCHES_MAX
        values = {"service": service_id, "owners": sorted(owners), "limit": limit}
        rows = self._sql.rows(connection, Query.open_counts, values)
        return Counter({row.owner: row.batches for row in rows})

    # One attempt.

    def begin_many(self, works: Sequence[Work], sender: str) -> list[Begun]:
        """Commit that attempts begin: of those whose claim holds and whose batch is in turn."""
        try:
            return self._begin(works, sender)
        except IntegrityError:
            # The index of the serial rule refused one of them; let it not hold up the others.
            if len(works) == 1:
                return []
            return [begun for each in works for begun in self.begin_many([each], sender)]

    def _begin(self, works: Sequence[Work], sender: str) -> list[Begun]:
        # One batch in turn per service, however often it was rung for.
        unique = {work.service_id: work for work in works}
        values = {
            "service": list(unique),
            "batch": [work.batch_id for work in unique.values()],
            "epoch": [work.epoch for work in unique.values()],
            "sender": sender,
            "budget": self._settings.ledger_post_budget_s,
            "grace": self._settings.ledger_grace_s,
            "drops_duplicates": self._drops_duplicates,
            "alert": TWICE_ALERT,
        }
        return [begun_from_row(row) for row in self._sql.run(Query.begin, values)]

    def finish_many(self, ended: Sequence[AttemptEnd]) -> tuple[list[AttemptEnd], list[Finished]]:
        """Record how attempts ended: those that counted, and the batches that are final now."""
        values = {
            "service": [each.begun.service_id for each in ended],
            "batch": [each.begun.batch_id for each in ended],
            "epoch": [each.begun.epoch for each in ended],
            "attempt": [each.begun.attempt for each in ended],
            "state": [str(each.state) for each in ended],
            "verdict": [str(each.verdict) for each in ended],
            "http": [each.http_status for each in ended],
            "note": [each.note for each in ended],
            "pause": [each.pause_s for each in ended],
            "final": [each.state in FINAL_STATES for each in ended],
            "alert": [each.alert for each in ended],
            "subject": [_alert_subject(each) for each in ended],
            "cleared": DELAYED_ALERT,
        }
        rows = self._sql.run(Query.finish, values)
        counted = {(row.service_id, row.batch_id) for row in rows}
        return [each for each in ended if each.begun.key in counted], finished_from_rows(rows)

    # What the ledger says.

    def take_up(self, *, rows_max: int) -> list[Asked]:
        """Batches of which the ledger should be asked now; other processes ask later."""
        settings = self._settings
        values = {
            "limit": rows_max,
            "first": settings.ledger_poll_first_s,
            "slowest": settings.ledger_poll_s_max,
            "recheck": RECHECK_S,
            "swallow": settings.ledger_swallow_s - settings.ledger_grace_s,
        }
        return [asked_from_row(row) for row in self._sql.run(Query.take_up, values)]

    def record_many(self, moves: Sequence[Move], source: str) -> list[Finished]:
        """Write down what answers made of batches; those that are final by that."""
        values: Mapping[str, Any] = {
            "service": [move.asked.service_id for move in moves],
            "batch": [move.asked.batch_id for move in moves],
            "state": [str(move.state) for move in moves],
            "was": [str(move.asked.state) for move in moves],
            "attempts": [move.asked.attempts for move in moves],
            "unknown_was": [move.asked.unknown_seen for move in moves],
            "unknown_seen": [move.unknown_seen for move in moves],
            "resubmits": [move.resubmits for move in moves],
            "receipt": [None if move.receipt is None else encode(move.receipt) for move in moves],
            "note": [move.note for move in moves],
            "final": [move.state in FINAL_STATES for move in moves],
            "recheck": [
                move.state is BatchState.INVALID and move.asked.possible > 1 for move in moves
            ],
            "alert": [move.alert for move in moves],
            "source": source,
            "slowest": self._settings.ledger_poll_s_max,
        }
        rows = self._sql.run(Query.record, values)
        done = {(row.service_id, row.batch_id) for row in rows}
        for move in moves:
            if move.state is BatchState.COMMITTED and move.asked.key not in done:
                self._report_late_commit(move, source)
        return finished_from_rows(rows)

    def _report_late_commit(self, move: Move, source: str) -> None:
        """The ledger has committed what is final here: fine, unless we said otherwise."""
        batch = self.find(*move.asked.key)
        if batch.state is BatchState.COMMITTED:
            return
        note = f"the ledger has committed it, but it was recorded as {batch.state}"
        names = {"service": batch.service_id, "batch": batch.batch_id}
        self._sql.run(Query.note_late_commit, {**names, "source": source, "note": note})
        self._alerts.raise_alert(ANOMALY_ALERT, subject_of(*move.asked.key), note)

    # For clients and operators.

    def find(self, service_id: str, batch_id: str, *, owner: str | None = None) -> LedgerBatch:
        values = {"service": service_id, "batch": batch_id, "owner": owner}
        rows = self._sql.run(Query.find, values)
        if not rows:
            raise BatchUnknown(f"{service_id} has no batch {batch_id[:128]!r}")
        return batch_from_row(rows[0])

    def payload(self, service_id: str, batch_id: str, *, owner: str | None = None) -> bytes:
        """The bytes of a batch; none once they were erased."""
        values = {"service": service_id, "batch": batch_id, "owner": owner}
        rows = self._sql.run(Query.payload, values)
        return bytes(rows[0].payload) if rows else b""

    def list_batches(
        self,
        *,
        service_id: str | None = None,
        state: BatchState | None = None,
        owner: str | None = None,
        with_final: bool = False,
        prefix: str = "",
        after: tuple[str, int] | None = None,
        rows_max: int = 100,
    ) -> list[LedgerBatch]:
        """By service and in order; with a prefix, those whose id starts like this."""
        chosen = {"prefix": prefix, "service": service_id, "state": state, "owner": owner}
        values = {
            **chosen,
            "all": with_final or state is not None,
            **dict(zip(("after", "after_seq"), after or (None, None), strict=True)),
            "limit": rows_max,
        }
        return [batch_from_row(row) for row in self._sql.run(Query.list_batches, values)]

    def attempts(self, service_id: str, batch_id: str) -> list[BatchAttempt]:
        rows = self._sql.run(Query.attempts, {"service": service_id, "batch": batch_id})
        return [attempt_from_row(row) for row in rows]

    def sightings(self, service_id: str, batch_id: str) -> list[Sighting]:
        rows = self._sql.run(Query.sightings, {"service": service_id, "batch": batch_id})
        return [
            Sighting(
                state=BatchState(row.state), source=row.source, note=row.note, seen_at=row.seen_at
            )
            for row in rows
        ]


def _alert_subject(ended: AttemptEnd) -> str:
    """A ledger that does not want our batches is one matter, whichever batch is first in line."""
    begun = ended.begun
    return begun.service_id if ended.alert == DELAYED_ALERT else subject_of(*begun.key)


def _fingerprint(batch: NewBatch) -> str:
    """Of the bytes and of whose they are: no client learns about the batches of others."""
    return hashlib.sha256(batch.owner.encode() + b"\x00" + batch.payload).hexdigest()


def _note(connection: Connection, batches: Sequence[NewBatch]) -> None:
    """In the commit that stores them: there is none without its line in the audit."""
    for each in batches:
        if each.by is not None:
            subject = subject_of(each.service_id, each.batch_id)
            note_action(
                connection, actor=each.by, action="batch.submit", subject=subject, reason=None
            )


def _again(batch: NewBatch, seq: int, state: BatchState, same: bool) -> Stored | BatchConflict:
    if same:
        return Stored(batch.service_id, batch.batch_id, seq, state, duplicate=True)
    return BatchConflict(
        f"{batch.service_id} has a batch {batch.batch_id[:16]}… already, with other bytes or of "
        "another owner"
    )


def _too_many(batch: NewBatch, limit: int) -> BatchLimit:
    return BatchLimit(
        f"{batch.owner} has {limit} batches in the line of {batch.service_id} that are not final; "
        "no more are taken until some are"
    )


def _columns(service_id: str, new: Mapping[str, tuple[int, NewBatch]]) -> dict[str, Any]:
    batches = [batch for _, batch in new.values()]
    return {
        "service": service_id,
        "batch": list(new),
        "seq": [seq for seq, _ in new.values()],
        "owner": [batch.owner for batch in batches],
        "fingerprint": [_fingerprint(batch) for batch in batches],
        "payload": [batch.payload for batch in batches],
        "tx_id": [batch.tx_id for batch in batches],
        "switch": [batch.switch for batch in batches],
    }
