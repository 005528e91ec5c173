"""Accepting in the SQL transaction of a caller: its commit accepts, its rollback leaves nothing.

The caller brings a connection to the same database, of SQLAlchemy, of psycopg2 or of Django. Each
use of it stands behind a savepoint, so an error of ours never ends the caller's transaction.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from types import SimpleNamespace
from typing import Any, Protocol

from psycopg2 import extensions
from sqlalchemy import Connection, Engine, event
from sqlalchemy.exc import OperationalError

from datp_tasks.errors import CallerTransactionUnfit
from datp_tasks.record.acceptance import accept_statement, existing_of, hold_keys
from datp_tasks.record.attributes import set_attributes
from datp_tasks.record.database import CONFLICTS
from datp_tasks.record.queries import Queries
from datp_tasks.record.record_types import Acceptance, Existing
from datp_tasks.record.transactions import Record

#: Is called right before or after a commit, with whatever the library says of it.
Tell = Callable[..., None]
KINDS = "a Connection or Session of SQLAlchemy, a connection of psycopg2, or Django's connection"


class Query(Queries, topic="caller_transaction"):
    savepoint: str
    release: str
    undo: str
    place: str
    number: str
    standing: str


class Statements(Protocol):
    """What statements of the record need of a connection."""

    def exec_driver_sql(self, statement: str, parameters: Any = None) -> Any: ...


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

    def __init__(self, connection: object) -> None:
        self._driver: extensions.connection
        self.statements: Statements
        #: Calls a function right before or after the commit, where the library can do that.
        self.before_commit: Callable[[Tell], None] = _cannot_tell
        found = _of_session(connection)
        if isinstance(found, Connection):
            self._use_sqlalchemy(found)
        elif isinstance(found, extensions.connection):
            self._use_driver(found)
        elif _is_of_django(found):
            self._use_django(found)
        else:
            kind = f"{type(found).__module__}.{type(found).__qualname__}"
            raise CallerTransactionUnfit(
                f"submit_in needs {KINDS}; this is a {kind}{_instead(found)}"
            )

    def _use_sqlalchemy(self, connection: Connection) -> None:
        if connection.dialect.driver != "psycopg2":
            raise CallerTransactionUnfit(
                f"submit_in needs SQLAlchemy with psycopg2 (postgresql+psycopg2://…); this "
                f"connection uses {connection.dialect.name}+{connection.dialect.driver}"
            )
        driver = connection.connection.driver_connection
        assert isinstance(driver, extensions.connection)
        self._driver = driver
        self.statements = connection
        self.before_commit = lambda tell: _before_commit(connection, tell)
        # SQLAlchemy begins with the first statement, and counts that as the caller's beginning.
        self._check_open(is_begun=not driver.autocommit)

    def _use_driver(self, connection: extensions.connection) -> None:
        self._driver = connection
        self.statements = _DriverStatements(connection)
        self._check_open(is_begun=not connection.autocommit)

    def _use_django(self, wrapper: Any) -> None:
        if wrapper.vendor != "postgresql":
            raise CallerTransactionUnfit(
                f"submit_in needs the database of DATP Tasks; this one is {wrapper.vendor}"
            )
        wrapper.ensure_connection()
        if not isinstance(wrapper.connection, extensions.connection):
            raise CallerTransactionUnfit("submit_in needs Django with psycopg2")
        self._driver = wrapper.connection
        self.statements = _DriverStatements(wrapper.connection)
        self.before_commit = wrapper.on_commit
        self._check_open(is_begun=wrapper.in_atomic_block)

    def _check_open(self, *, is_begun: bool) -> None:
        status = self._driver.get_transaction_status()
        if status == extensions.TRANSACTION_STATUS_INERROR:
            raise CallerTransactionUnfit(
                "a statement of this transaction has failed; roll it back first"
            )
        if not is_begun and status != extensions.TRANSACTION_STATUS_INTRANS:
            raise CallerTransactionUnfit(
                "this connection is in autocommit mode and has no transaction open: begin one, or "
                "use submit()"
            )

    @contextmanager
    def behind_savepoint(self) -> Iterator[Statements]:
        """All or nothing, and the caller's transaction stays usable."""
        self.statements.exec_driver_sql(Query.savepoint)
        try:
            yield self.statements
        except BaseException:
            if self._driver.closed == 0:
                self.statements.exec_driver_sql(Query.undo)
            raise
        self.statements.exec_driver_sql(Query.release)


class CallerAccepts:
    """Accepting in transactions of callers, and finding out what became of them."""

    def __init__(self, engine: Engine, record: Record) -> None:
        self._alone = engine.execution_options(isolation_level="AUTOCOMMIT")
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
            with self._alone.connect() as own:
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
        with self._alone.connect() as own:
            rows = own.exec_driver_sql(Query.standing, values)
            return [CallerOutcome(row.tx_id, bool(row.is_queued), row.is_over) for row in rows]


class _DriverStatements:
    """A connection of psycopg2, called as SQLAlchemy's are. Its own cursor factory is not used."""

    def __init__(self, connection: extensions.connection) -> None:
        self._connection = connection

    def exec_driver_sql(self, statement: str, parameters: Any = None) -> _Rows:
        with self._connection.cursor(cursor_factory=extensions.cursor) as cursor:
            cursor.execute(statement, parameters)
            names = [column.name for column in cursor.description or ()]
            found = cursor.fetchall() if names else []
        return _Rows(SimpleNamespace(**dict(zip(names, row, strict=True))) for row in found)


class _Rows(list[SimpleNamespace]):
    def one(self) -> SimpleNamespace:
        (row,) = self
        return row


def _of_session(connection: object) -> object:
    """The connection of a Session; anything else as it is. The module is not imported for it."""
    orm = sys.modules.get("sqlalchemy.orm")
    if orm is not None and isinstance(connection, orm.Session | orm.scoped_session):
        return connection.connection()
    return connection


def _is_of_django(connection: object) -> bool:
    """Its wrapper, or the proxy `django.db.connection`; Django is not imported for it."""
    names = ("ensure_connection", "in_atomic_block", "on_commit", "vendor")
    return all(hasattr(connection, name) for name in names)


def _before_commit(connection: Connection, tell: Tell) -> None:
    # Once, however much is submitted over a connection that is kept for long.
    if not event.contains(connection, "commit", tell):
        event.listen(connection, "commit", tell)


def _instead(connection: object) -> str:
    """What to do with a connection that is often tried."""
    module = type(connection).__module__
    if module.startswith(("sqlalchemy.ext.asyncio", "asyncpg")):
        return (
            ". Its statements are awaited, ours are not: do the whole SQL transaction in a thread "
            "(asyncio.to_thread) with psycopg2, or commit it and then submit() with an external id"
        )
    if module.split(".")[0] == "psycopg":
        return ", of psycopg 3. Open the connection for this SQL transaction with psycopg2"
    return ""


def _cannot_tell(tell: Tell) -> None:
    """Its library calls no function at a commit."""


def _is_conflict(error: Exception) -> bool:
    driver = error.orig if isinstance(error, OperationalError) else error
    return getattr(driver, "pgcode", None) in CONFLICTS
