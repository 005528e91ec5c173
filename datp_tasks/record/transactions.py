"""The record: accepting and ending transactions in PostgreSQL.

A transaction is accepted when its row is committed, and final when one UPDATE found it not yet
final and no newer fence in its row. That UPDATE decides every race. All methods take many rows
and commit once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime
from typing import Any

from sqlalchemy import Connection, Engine
from sqlalchemy.exc import OperationalError

from datp_tasks.clock import Clock
from datp_tasks.model.status import Status
from datp_tasks.record.acceptance import accept_statement, existing_of, hold_keys
from datp_tasks.record.array_text import if_any
from datp_tasks.record.attributes import set_attributes
from datp_tasks.record.queries import Queries
from datp_tasks.record.record_types import (
    Acceptance,
    Change,
    Existing,
    Final,
    Mark,
    Summary,
    summary_from_row,
)
from datp_tasks.record.sole_statement import SoleStatements


class Query(Queries, topic="transactions"):
    finish: str
    report_progress: str
    raise_fences: str
    fence_of_decision: str
    take_fences: str
    mark: str
    mark_expiring: str
    note_late: str
    by_ids: str
    page: str
    by_external_id: str
    server_now: str
    log_page: str
    count: str
    finals: str
    open_ids: str
    open_ids_newest_first: str


#: Transactions, the numbers of their events for which a webhook is due from now on, and owners.
Due = Sequence[tuple[str, int, str]]
#: When a transaction was accepted, and its id: where it stands among the others.
Place = tuple[datetime, str]


def _left_to_the_sender(due: Due) -> None:
    """The webhook sender finds in SQL what is overdue."""


class Record:
    def __init__(
        self,
        engine: Engine,
        clock: Clock,
        *,
        tell_due: Callable[[Due], None] = _left_to_the_sender,
        on_final: Callable[[Sequence[Final], set[str]], None] | None = None,
    ) -> None:
        self.engine = engine
        #: Each statement is a transaction of its own, which saves two round trips.
        self._autocommit = engine.execution_options(isolation_level="AUTOCOMMIT")
        #: The same at less cost, for those that a client or a worker waits for each time.
        self._sole = SoleStatements(engine)
        self.clock = clock
        #: Called after a commit that made webhooks due.
        self._tell_due = tell_due
        #: Called after a commit of final statuses, with those that it decided.
        self._on_final = on_final
        #: Counted for the benchmark and for tests: what a transaction costs.
        self.commits = 0

    def accept_many(self, wanted: Sequence[Acceptance]) -> list[Existing | None]:
        """Commit requests; for each None, or the transaction that has its external id."""
        try:
            return self._accept(wanted)
        except OperationalError as error:
            if not error.connection_invalidated:
                raise
            # The commit may have happened although its answer was lost: look before repeating.
            found = {each.tx_id for each in self.summaries([each.tx_id for each in wanted])}
            again = [each for each in wanted if each.tx_id not in found]
            answers = iter(self._accept(again) if again else [])
            return [None if each.tx_id in found else next(answers) for each in wanted]

    def _accept(self, wanted: Sequence[Acceptance]) -> list[Existing | None]:
        statement = accept_statement(wanted, self._now())
        self.commits += 1
        keys = sorted({each.data_key for each in wanted if each.data_key})
        is_searched = any(each.attributes for each in wanted)
        if keys or is_searched:
            with self.engine.begin() as connection:
                if keys:
                    hold_keys(connection, keys)
                rows = connection.exec_driver_sql(*statement).all()
                set_attributes(connection, wanted, {row.tx_id for row in rows})
        else:
            rows = self._sole.execute(*statement)
        accepted = {row.tx_id for row in rows}
        refused = [each for each in wanted if each.tx_id not in accepted]
        names = [(each.owner, each.external_id or "") for each in refused]
        existing = self.find_existing(names) if names else {}
        return [
            None if each.tx_id in accepted else existing[each.owner, each.external_id or ""]
            for each in wanted
        ]

    def find_existing(self, names: Sequence[tuple[str, str]]) -> dict[tuple[str, str], Existing]:
        """The transactions that have these external ids, by owner and external id."""
        with self._autocommit.connect() as connection:
            return existing_of(connection, names)

    def finish_many(self, finals: Sequence[Final]) -> set[str]:
        """Commit final statuses; the ids that this call (or its lost first try) decided."""
        if not finals:
            return set()
        try:
            won = self._finish(finals)
        except OperationalError as error:
            if not error.connection_invalidated:
                raise
            won = self._finish(finals)
        lost = [final for final in finals if final.tx_id not in won]
        if lost:
            # A row that is final under our own fence was ended by us, in a commit whose answer
            # never came back.
            ours = {final.tx_id: final.fence for final in lost}
            rows = self.summaries(list(ours))
            won |= {r.tx_id for r in rows if r.is_final and r.fence == ours[r.tx_id]}
        if self._on_final is not None:
            self._on_final(finals, won)
        return won

    def _finish(self, finals: Sequence[Final]) -> set[str]:
        columns = {
            "tx_id": [final.tx_id for final in finals],
            "fence": [final.fence for final in finals],
            "status": [str(final.status) for final in finals],
            "output": if_any([final.output_json for final in finals]),
            "note": if_any([final.note for final in finals]),
            "progress": if_any([final.progress_json for final in finals]),
            "is_begun": [final.is_begun for final in finals],
            "now": self._now(),
        }
        self.commits += 1
        if any(final.attributes for final in finals):
            with self.engine.begin() as connection:
                rows = connection.exec_driver_sql(Query.finish, columns).all()
                set_attributes(connection, finals, {row.tx_id for row in rows})
        else:
            rows = self._sole.execute(Query.finish, columns)
        due = [(row.tx_id, row.due, row.owner) for row in rows if row.due is not None]
        if due:
            self._tell_due(due)
        return {row.tx_id for row in rows}

    def report_progress(self, tx_id: str, fence: int, progress_json: str) -> int | None:
        """Record a report; its number, or None if it has ended or a newer fence is known."""
        values = {"tx_id": tx_id, "fence": fence, "progress": progress_json, "now": self._now()}
        self.commits += 1
        with self._autocommit.connect() as connection:
            row = connection.exec_driver_sql(Query.report_progress, values).first()
        if row is None:
            return None
        if row.is_due:
            self._tell_due([(row.tx_id, row.sequence, row.owner)])
        return int(row.sequence)

    def raise_fences(
        self, claims: Sequence[tuple[str, int]], *, connection: Connection | None = None
    ) -> dict[str, int]:
        """Shut out the holders of these fences; the new fence of each that is not final.

        Repeating it changes nothing, and a claim that is newer than the one named is left alone,
        as is a row that is locked: its holder may be in the middle of a transactional step.
        With a connection it becomes part of that transaction.
        """
        columns = {"tx_id": [tx for tx, _ in claims], "fence": [fence for _, fence in claims]}
        with self._part_of(connection) as used:
            rows = used.exec_driver_sql(Query.raise_fences, columns)
            return {row.tx_id: row.fence for row in rows}

    def fence_of_decision(self, tx_id: str, fence: int, connection: Connection) -> int | None:
        """The same for one, with a fence that no other decision has; None if it is left alone."""
        values = {"tx_id": tx_id, "fence": fence}
        row = connection.exec_driver_sql(Query.fence_of_decision, values).first()
        return None if row is None else int(row.fence)

    @contextmanager
    def _part_of(self, connection: Connection | None) -> Iterator[Connection]:
        """The given transaction, or one of its own."""
        if connection is not None:
            yield connection
            return
        self.commits += 1
        with self._autocommit.connect() as own:
            yield own

    def take_fences(self, claims: Sequence[tuple[str, int]]) -> set[str]:
        """Which of these claims hold; from here on SQL refuses every older one.

        What is not returned is final, or a newer claim is known: its holder must change nothing.
        Repeating it changes nothing.
        """
        if not claims:
            return set()
        columns = {"tx_id": [tx for tx, _ in claims], "fence": [fence for _, fence in claims]}
        return _again_if_cut_off(lambda: self._take_fences(columns))

    def _take_fences(self, columns: dict[str, Any]) -> set[str]:
        self.commits += 1
        with self._autocommit.connect() as connection:
            return {row.tx_id for row in connection.exec_driver_sql(Query.take_fences, columns)}

    def mark_expiring(self, tx_ids: Sequence[str]) -> set[str]:
        """They expire although work had begun; those that are not final and not locked now."""
        self.commits += 1
        with self._autocommit.connect() as connection:
            rows = connection.exec_driver_sql(
                Query.mark_expiring, {"tx_id": list(tx_ids), "now": self._now()}
            )
            return {row.tx_id for row in rows}

    def note_late(self, tx_id: str) -> None:
        """The history tells, once, that a success was refused."""
        self.commits += 1
        with self._autocommit.connect() as connection:
            connection.exec_driver_sql(Query.note_late, {"tx_id": tx_id, "now": self._now()})

    def mark(self, tx_id: str, fence: int, status: Status, note: str) -> bool:
        """Show a status that is not final, such as in-doubt, unless a newer fence is known."""
        return tx_id in self.mark_many([Mark(tx_id, fence, note)], status)

    def mark_many(
        self, marks: Sequence[Mark], status: Status, *, connection: Connection | None = None
    ) -> set[str]:
        """The same for many; those that show it now under this fence, also if they did before."""
        if not marks:
            return set()
        columns = {
            "tx_id": [mark.tx_id for mark in marks],
            "fence": [mark.fence for mark in marks],
            "note": [mark.note for mark in marks],
            "status": str(status),
            "now": self._now(),
        }
        if connection is not None:
            return self._mark(columns, connection)
        return _again_if_cut_off(lambda: self._mark(columns))

    def _mark(self, columns: dict[str, Any], connection: Connection | None = None) -> set[str]:
        with self._part_of(connection) as used:
            return {row.tx_id for row in used.exec_driver_sql(Query.mark, columns)}

    def server_now(self) -> datetime:
        """The time that decides what has expired."""
        given = self._now()
        if given is not None:
            return given
        with self._autocommit.connect() as connection:
            now: datetime = connection.exec_driver_sql(Query.server_now).scalar_one()
            return now

    def server_now_ms(self) -> int:
        return int(self.server_now().timestamp() * 1_000)

    def summaries(self, tx_ids: Sequence[str]) -> list[Summary]:
        return self._select(Query.by_ids, {"tx_id": list(tx_ids)})

    def count(self) -> int:
        """About how many transactions there are."""
        with self._autocommit.connect() as connection:
            found = connection.exec_driver_sql(Query.count).scalar_one()
            return int(found)

    def page(self, after: str, rows_max: int) -> list[Summary]:
        """All transactions by id, from the one after `after` on."""
        return self._select(Query.page, {"after": after, "limit": rows_max})

    def log_page(self, before: int | None, rows_max: int) -> list[Change]:
        """Rows of the log of state changes, the newest first, from the one before on."""
        with self._autocommit.connect() as connection:
            rows = connection.exec_driver_sql(Query.log_page, {"before": before, "limit": rows_max})
            return [Change(row.id, row.tx_id, Status(row.status), row.created_at) for row in rows]

    def finals(self, tx_ids: Sequence[str]) -> dict[str, str]:
        """The final status of each of these that has ended."""
        with self._autocommit.connect() as connection:
            rows = connection.exec_driver_sql(Query.finals, {"tx_id": list(tx_ids)})
            return {row.tx_id: row.status for row in rows}

    def by_external_id(self, owner: str, external_id: str) -> Summary | None:
        found = self._select(Query.by_external_id, {"owner": owner, "external_id": external_id})
        return found[0] if found else None

    def open_ids(
        self,
        *,
        since: datetime | None,
        until: datetime,
        after: Place | None = None,
        rows_max: int,
        newest_first: bool = False,
        in_doubt: bool = False,
    ) -> list[Place]:
        """Transactions that go on, accepted in this time, from the one after `after` on.

        Only what is needed to find them: their data may be large. What is in doubt is left out
        unless asked for, because it must not run again by itself.
        """
        end: tuple[object, str] = ("infinity", "") if newest_first else ("-infinity", "")
        created_at, tx_id = after or end
        values = {
            "since": since or "-infinity",
            "until": until,
            "after": created_at,
            "after_id": tx_id,
            "in_doubt": in_doubt,
            "limit": rows_max,
        }
        sql = Query.open_ids_newest_first if newest_first else Query.open_ids
        with self._autocommit.connect() as connection:
            rows = connection.exec_driver_sql(sql, values)
            return [(row.created_at, row.tx_id) for row in rows]

    def _select(self, sql: str, values: dict[str, Any]) -> list[Summary]:
        try:
            return self._read(sql, values)
        except OperationalError as error:
            if not error.connection_invalidated:
                raise
            # A connection from before a restart of the server; the next one is new.
            return self._read(sql, values)

    def _read(self, sql: str, values: dict[str, Any]) -> list[Summary]:
        return [summary_from_row(row) for row in self._sole.execute(sql, values)]

    def _now(self) -> datetime | None:
        return self.clock.now()


def _again_if_cut_off(change: Callable[[], set[str]]) -> set[str]:
    """For a change that may be made twice: its commit may have happened although no answer came."""
    try:
        return change()
    except OperationalError as error:
        if not error.connection_invalidated:
            raise
        return change()
