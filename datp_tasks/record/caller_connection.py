"""The connection of a caller of `submit_in`, of whatever library it is: statements go over it."""

from __future__ import annotations

import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any, Protocol

from psycopg2 import extensions
from sqlalchemy import Connection, event

from datp_tasks.errors import CallerTransactionUnfit

#: Is called right before or after a commit, with whatever the library says of it.
Tell = Callable[..., None]
KINDS = (
    "a Connection or Session of SQLAlchemy, a connection of psycopg2 or psycopg, or Django's "
    "connection"
)
#: Drivers of SQLAlchemy whose connections are taken.
DRIVERS = ("psycopg2", "psycopg")
WITH_DRIVERS = "psycopg2 or psycopg (postgresql+psycopg2://… or postgresql+psycopg://…)"


class Statements(Protocol):
    """What statements of the record need of a connection."""

    def exec_driver_sql(self, statement: str, parameters: Any = None) -> Any: ...


class CallerConnection(ABC):
    """What is done with the connection of a caller."""

    statements: Statements

    def __init__(self, driver: Any, *, is_begun: bool) -> None:
        self.driver = driver
        #: The next statement is in a transaction that the caller ends.
        self._is_begun = is_begun
        self._tell_commits: Callable[[Tell], None] | None = None

    @abstractmethod
    def transaction_status(self) -> int:
        """As libpq counts them, which both drivers do."""

    def is_closed(self) -> bool:
        return bool(self.driver.closed)

    def tells_commits_by(self, tell_commits: Callable[[Tell], None]) -> None:
        self._tell_commits = tell_commits

    def before_commit(self, tell: Tell) -> None:
        """Call this function right before or after the commit, where the library can do that."""
        if self._tell_commits is not None:
            self._tell_commits(tell)

    @contextmanager
    def for_undoing(self) -> Iterator[None]:
        """What is sent here is sent although the caller no longer waits for the rest."""
        yield

    def check_open(self) -> None:
        status = self.transaction_status()
        if status == extensions.TRANSACTION_STATUS_ACTIVE:
            raise CallerTransactionUnfit(
                "the answer to a statement of this connection is still being read, or was given up "
                "halfway: read it to its end first, or use another connection"
            )
        if status == extensions.TRANSACTION_STATUS_INERROR:
            raise CallerTransactionUnfit(
                "a statement of this transaction has failed; roll it back first"
            )
        if not self._is_begun and status != extensions.TRANSACTION_STATUS_INTRANS:
            raise CallerTransactionUnfit(
                "this connection is in autocommit mode and has no transaction open: begin one, or "
                "use submit()"
            )


class _Psycopg2Connection(CallerConnection):
    def __init__(
        self, driver: extensions.connection, *, is_begun: bool, over: Connection | None = None
    ) -> None:
        super().__init__(driver, is_begun=is_begun)
        # SQLAlchemy begins with the first statement, and counts that as the caller's beginning.
        self.statements = over or _Psycopg2Statements(driver)

    def transaction_status(self) -> int:
        return int(self.driver.get_transaction_status())


class PsycopgConnection(CallerConnection):
    """A connection of psycopg 3. Values are written into the statements by the client, as psycopg2
    does it: bound by the server, some would need types that the statements do not name."""

    def __init__(
        self, driver: Any, *, is_begun: bool, statements: Statements | None = None
    ) -> None:
        super().__init__(driver, is_begun=is_begun)
        self.statements = statements or _PsycopgStatements(driver)

    def transaction_status(self) -> int:
        return int(self.driver.info.transaction_status)

    def check_open(self) -> None:
        if self.driver.pgconn.pipeline_status:
            raise CallerTransactionUnfit(
                "this connection is in pipeline mode, where a statement has no answer of its own: "
                "call submit_in outside of `with connection.pipeline()`"
            )
        super().check_open()


def connection_of(given: object) -> CallerConnection:
    """What the caller gave, or CallerTransactionUnfit with what to do instead."""
    found: Any = _of_session(given)
    if isinstance(found, Connection):
        return _of_sqlalchemy(found)
    if isinstance(found, extensions.connection) or is_psycopg(found, "Connection"):
        return _of_driver(found, is_begun=not found.autocommit)
    if _is_of_django(found):
        return _of_django(found)
    raise unfit(found, _instead(found))


def unfit(found: object, instead: str) -> CallerTransactionUnfit:
    kind = f"{type(found).__module__}.{type(found).__qualname__}"
    return CallerTransactionUnfit(f"submit_in needs {KINDS}; this is a {kind}{instead}")


def is_psycopg(connection: object, kind: str) -> bool:
    """Of psycopg 3, which is not imported for it."""
    psycopg = sys.modules.get("psycopg")
    return psycopg is not None and isinstance(connection, getattr(psycopg, kind))


def tell_commits_of(connection: Connection) -> Callable[[Tell], None]:
    def tell_commits(tell: Tell) -> None:
        # Once, however much is submitted over a connection that is kept for long.
        if not event.contains(connection, "commit", tell):
            event.listen(connection, "commit", tell)

    return tell_commits


def _of_driver(driver: Any, *, is_begun: bool) -> CallerConnection:
    if isinstance(driver, extensions.connection):
        return _Psycopg2Connection(driver, is_begun=is_begun)
    return PsycopgConnection(driver, is_begun=is_begun)


def _of_sqlalchemy(connection: Connection) -> CallerConnection:
    if connection.dialect.driver not in DRIVERS:
        raise CallerTransactionUnfit(
            f"submit_in needs SQLAlchemy with {WITH_DRIVERS}; this connection uses "
            f"{connection.dialect.name}+{connection.dialect.driver}"
        )
    driver: Any = connection.connection.driver_connection
    found: CallerConnection
    if isinstance(driver, extensions.connection):
        found = _Psycopg2Connection(driver, is_begun=not driver.autocommit, over=connection)
    else:
        found = PsycopgConnection(driver, is_begun=not driver.autocommit)
        found.check_open()
        # Statements go past SQLAlchemy here, which would else not know that there is one to commit.
        if not connection.in_transaction():
            connection.begin()
    found.tells_commits_by(tell_commits_of(connection))
    return found


def _of_django(wrapper: Any) -> CallerConnection:
    if wrapper.vendor != "postgresql":
        raise CallerTransactionUnfit(
            f"submit_in needs the database of DATP Tasks; this one is {wrapper.vendor}"
        )
    wrapper.ensure_connection()
    driver = wrapper.connection
    if not isinstance(driver, extensions.connection) and not is_psycopg(driver, "Connection"):
        raise CallerTransactionUnfit("submit_in needs Django with psycopg2 or psycopg")
    found = _of_driver(driver, is_begun=wrapper.in_atomic_block)
    found.tells_commits_by(wrapper.on_commit)
    return found


class _Psycopg2Statements:
    """A connection of psycopg2, called as SQLAlchemy's are. Its own cursor factory is not used."""

    def __init__(self, connection: extensions.connection) -> None:
        self._connection = connection

    def exec_driver_sql(self, statement: str, parameters: Any = None) -> Rows:
        with self._connection.cursor(cursor_factory=extensions.cursor) as cursor:
            cursor.execute(statement, parameters)
            return Rows.of(cursor.description, cursor.fetchall)


class _PsycopgStatements:
    """A connection of psycopg 3, called as SQLAlchemy's are. Its own factories are not used."""

    def __init__(self, connection: Any) -> None:
        self._connection = connection

    def exec_driver_sql(self, statement: str, parameters: Any = None) -> Rows:
        psycopg = sys.modules["psycopg"]
        factory = psycopg.rows.tuple_row
        with psycopg.ClientCursor(self._connection, row_factory=factory) as cursor:
            cursor.execute(statement, parameters)
            return Rows.of(cursor.description, cursor.fetchall)


class Rows(list[SimpleNamespace]):
    """What a statement gave; empty for one that gives none."""

    @classmethod
    def of(cls, description: Any, fetch: Callable[[], list[tuple[Any, ...]]]) -> Rows:
        names = [column.name for column in description or ()]
        found = fetch() if names else []
        return cls(SimpleNamespace(**dict(zip(names, row, strict=True))) for row in found)

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


def _instead(connection: object) -> str:
    """What to do with a connection that is often tried."""
    if type(connection).__module__.startswith(("sqlalchemy.ext.asyncio", "asyncpg", "psycopg")):
        return ". Its statements are awaited: use `await client.submit_in_async(connection, …)`"
    return ""
