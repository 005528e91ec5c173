"""The connection to PostgreSQL, and bringing its tables up to date."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from sqlalchemy import Connection, Engine, create_engine, event
from sqlalchemy.engine import make_url
from sqlalchemy.exc import OperationalError, SQLAlchemyError
from sqlalchemy.exc import TimeoutError as PoolTimeout

from datp_tasks.errors import DatabaseUnavailable, SettingsError, StepError
from datp_tasks.record.lent_connection import LentConnection
from datp_tasks.record.queries import Queries
from datp_tasks.settings import Settings

#: The connection and the engine under the names of this room, for those that hand them on.
__all__ = [
    "Connection",
    "Engine",
    "answers",
    "is_conflict",
    "is_outage",
    "make_engine",
    "migrate",
    "require_tables",
    "translate_outage",
]

HERE = Path(__file__).resolve().parent
#: The wheel carries the migrations inside the package; a checkout has them at its top.
MIGRATIONS = (HERE.parent / "_migrations", HERE.parent.parent / "migrations")

#: SQLSTATEs: serialization failure, deadlock, lock not available.
CONFLICTS = ("40001", "40P01", "55P03")
#: SQLSTATE of a statement that was ended from outside, as by statement_timeout.
CANCELED = "57014"

ALL_IN_USE = (
    "all connections to PostgreSQL of this process are in use; raise DATP_SQL__POOL_SIZE or use "
    "fewer threads"
)
NO_TABLES = (
    "The database of DATP_DATABASE_URL has no tables yet. Make them with `datp migrate`, and start "
    "this again. Or it has them, and its role may not see them: `datp db rights`, or another "
    "search_path."
)


class Query(Queries, topic="database"):
    ping: str
    has_tables: str


def make_engine(settings: Settings, *, autocommit: bool = False) -> Engine:
    """With `autocommit`, each statement is a transaction, which saves two round trips."""
    url = make_url(settings.database_url).set(drivername="postgresql+psycopg2")
    engine = create_engine(
        url,
        pool_size=settings.sql_pool_size,
        max_overflow=settings.sql_pool_size,
        pool_pre_ping=False,
        pool_use_lifo=True,
        # The text of an error must not carry the payloads of a statement into logs and notes.
        hide_parameters=True,
        isolation_level="AUTOCOMMIT" if autocommit else None,
        connect_args={
            "connect_timeout": 5,
            # A server that vanished without a word must not hold up a worker for minutes.
            "keepalives_idle": 10,
            "keepalives_interval": 5,
            "keepalives_count": 3,
            "tcp_user_timeout": 15_000,
            "application_name": "datp",
            "connection_factory": LentConnection,
            "options": (
                f"-c statement_timeout={int(settings.sql_statement_timeout_s * 1000)} "
                "-c timezone=UTC"
            ),
        },
    )
    event.listen(engine, "connect", _plain_json)
    return engine


def _plain_json(connection: object, _record: object) -> None:
    """Leave JSON columns as text: money must not pass through floats on its way out."""
    from psycopg2.extras import register_default_json, register_default_jsonb

    register_default_json(connection, loads=lambda text: text)  # type: ignore[arg-type]
    register_default_jsonb(connection, loads=lambda text: text)  # type: ignore[arg-type]


def answers(engine: Engine) -> bool:
    """Whether PostgreSQL can be reached and executes statements."""
    try:
        with engine.connect() as connection:
            connection.exec_driver_sql(Query.ping)
    except SQLAlchemyError:
        return False
    return True


def require_tables(engine: Engine) -> None:
    """SettingsError if `migrate` was never run on this database."""
    with translate_outage(), engine.connect() as connection:
        found = connection.exec_driver_sql(Query.has_tables).scalar_one()
    if not found:
        raise SettingsError(NO_TABLES)


def is_outage(error: OperationalError) -> bool:
    """The connection was lost or could not be made; what the server itself refuses has a code."""
    return error.connection_invalidated or getattr(error.orig, "pgcode", None) is None


def is_conflict(error: OperationalError) -> bool:
    """Another transaction was in the way: the same statement may succeed next time."""
    return getattr(error.orig, "pgcode", None) in CONFLICTS


def is_timeout(error: OperationalError) -> bool:
    """PostgreSQL ended the statement because it took too long."""
    return getattr(error.orig, "pgcode", None) == CANCELED


def connect_for_step(engine: Engine) -> Connection:
    """StepError if all connections are in use: a pool that is too small stays too small."""
    try:
        return engine.connect()
    except PoolTimeout as error:
        raise StepError(ALL_IN_USE) from error


def passing_reason(error: OperationalError) -> str:
    """Why PostgreSQL cannot do now what it may do later; empty if it refuses for good."""
    if is_outage(error):
        return "PostgreSQL is unavailable"
    if is_conflict(error):
        return "another transaction is in the way in PostgreSQL"
    return "PostgreSQL took too long" if is_timeout(error) else ""


@contextmanager
def translate_outage() -> Iterator[None]:
    """For those who call us: DatabaseUnavailable instead of an error of the library."""
    try:
        yield
    except OperationalError as error:
        if not is_outage(error):
            raise
        reason = str(error.orig).strip().partition("\n")[0]
        raise DatabaseUnavailable(
            "PostgreSQL is unavailable. Ask again later; a request with an external id can be "
            "repeated safely.",
            reason,
        ) from error


def migrate(database_url: str, revision: str = "head") -> None:
    """Create or upgrade the tables. Two at once are harmless: a lock lets one through."""
    from alembic import command
    from alembic.config import Config

    folder = next(path for path in MIGRATIONS if (path / "env.py").exists())
    config = Config()
    config.set_main_option("script_location", str(folder))
    config.set_main_option("path_separator", "os")
    config.attributes["database_url"] = database_url
    command.upgrade(config, revision)
