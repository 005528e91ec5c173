"""Accepting in the SQL transaction of a caller: its commit accepts, its rollback leaves nothing.

The caller brings a connection to the same database (`caller_connection` says of which kinds). Each
use of it stands behind a savepoint, so an error of ours never ends the caller's transaction.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import Engine
from sqlalchemy.exc import OperationalError

from datp_tasks.errors import CallerTransactionUnfit
from datp_tasks.record.acceptance import accept_statement, existing_of, hold_keys
from datp_tasks.record.attributes import set_attributes
from datp_tasks.record.caller_connection import CallerConnection, Statements, Tell
from datp_tasks.record.database import CONFLICTS
from datp_tasks.record.queries import Queries
from datp_tasks.record.record_types import Acceptance, Existing
from datp_tasks.record.transactions import Record


class Query(Queries, topic="caller_transaction"):
    savepoint: str
    release: str
    undo: str
    savepoint_call: str
    release_call: str
    undo_call: str
    place: str
    number: str
    standing: str


@dataclass(frozen=True, slots=True)
class CallerOutcome:
    """What is known of a row that a caller may or may not have committed."""

    tx_id: str
    #: It is committed, and no worker has had it yet.
    is_queued: bool
    #: The caller's transaction is over: without a row, it was rolled back.
    is_over: bool


@dataclass(frozen=True, slots=True)
class Joined:
    """What was accepted, if the caller commits."""

    #: For each request None, or the transaction that has its external id.
    existing: list[Existing | None]
    #: The number of the caller's transaction.
    xact: str


class CallerTransaction:
    """The open transaction of a caller, behind a savepoint."""

    def __init__(self, connection: CallerConnection) -> None:
        self._connection = connection
        connection.check_open()

    def before_commit(self, tell: Tell) -> None:
        self._connection.before_commit(tell)

    @contextmanager
    def behind_savepoint(self) -> Iterator[Statements]:
        """All or nothing, and the caller's transaction stays usable."""
        statements = self._connection.statements
        statements.exec_driver_sql(Query.savepoint)
        try:
            yield statements
        except BaseException:
            if not self._connection.is_closed():
                with self._connection.for_undoing():
                    statements.exec_driver_sql(Query.undo)
            raise
        statements.exec_driver_sql(Query.release)

    @contextmanager
    def as_a_whole(self) -> Iterator[None]:
        """All batches of a call or none: a caller that is told of an error may commit the rest."""
        statements = self._connection.statements
        statements.exec_driver_sql(Query.savepoint_call)
        try:
            yield
        except BaseException:
            if not self._connection.is_closed():
                statements.exec_driver_sql(Query.undo_call)
            raise
        statements.exec_driver_sql(Query.release_call)


class CallerAccepts:
    """Accepting in transactions of callers, and finding out what became of them."""

    def __init__(self, engine: Engine, record: Record) -> None:
        self._autocommit = engine.execution_options(isolation_level="AUTOCOMMIT")
        self._record = record
        #: Where the tables of this installation are, once it was asked for.
        self._place: tuple[str, str] | None = None

    def accept(self, caller: CallerTransaction, wanted: Sequence[Acceptance]) -> Joined:
        try:
            with caller.behind_savepoint() as statements:
                return self._accept(statements, wanted)
        except Exception as error:
            if not _is_conflict(error):
                raise
        # In a stricter isolation the caller cannot see who has the external id: we can.
        names = [(each.owner, each.external_id) for each in wanted if each.external_id]
        found = self._record.find_existing(names)
        left = [each for each in wanted if (each.owner, each.external_id or "") not in found]
        with caller.behind_savepoint() as statements:
            joined = self._accept(statements, left)
        answers = iter(joined.existing)
        return Joined(
            [found.get((each.owner, each.external_id or "")) or next(answers) for each in wanted],
            joined.xact,
        )

    def _accept(self, statements: Statements, wanted: Sequence[Acceptance]) -> Joined:
        here = statements.exec_driver_sql(Query.place).one()
        self._check_place(here)
        keys = sorted({each.data_key for each in wanted if each.data_key})
        if keys:
            hold_keys(statements, keys)
        # When it was submitted, not when the caller's transaction began: the reconciler looks for
        # what is new by that time.
        now: datetime = self._record.clock.now() or here.now
        rows = statements.exec_driver_sql(*accept_statement(wanted, now))
        accepted = {row.tx_id for row in rows}
        set_attributes(statements, wanted, accepted)
        refused = [each for each in wanted if each.tx_id not in accepted]
        names = [(each.owner, each.external_id or "") for each in refused]
        existing = existing_of(statements, names) if names else {}
        missing = [name for name in names if name not in existing]
        if missing:
            existing |= self._record.find_existing(missing)
        xact = statements.exec_driver_sql(Query.number).one().xact
        return Joined(
            [
                None if each.tx_id in accepted else existing[each.owner, each.external_id or ""]
                for each in wanted
            ],
            xact,
        )

    def _check_place(self, here: Any) -> None:
        if self._place is None:
            with self._autocommit.connect() as own:
                found = own.exec_driver_sql(Query.place).one()
                self._place = found.place, found.database
        place, database = self._place
        if here.place == place:
            return
        if not here.has_tables:
            raise CallerTransactionUnfit(
                f"this connection reaches the database {here.database!r}, in which (and in whose "
                f"search path) DATP Tasks has no tables: submit_in needs a connection to the "
                f"database {database!r} of DATP Tasks, because one commit is in one database"
            )
        raise CallerTransactionUnfit(
            f"this connection reaches other tables of DATP Tasks (database {here.database!r}) than "
            f"this client does (database {database!r}): server, database or schema differ"
        )

    def standing(self, pending: Sequence[tuple[str, str]]) -> list[CallerOutcome]:
        """What became of these (transaction, number of the caller's transaction)."""
        values = {"tx_id": [tx_id for tx_id, _ in pending], "xact": [xact for _, xact in pending]}
        with self._autocommit.connect() as own:
            rows = own.exec_driver_sql(Query.standing, values)
            return [CallerOutcome(row.tx_id, bool(row.is_queued), row.is_over) for row in rows]


def _is_conflict(error: Exception) -> bool:
    driver = error.orig if isinstance(error, OperationalError) else error
    # psycopg2 and psycopg 3 name it differently.
    code = getattr(driver, "pgcode", None) or getattr(driver, "sqlstate", None)
    return code in CONFLICTS
