"""The archiver's role. Redis grants it for a while; SQL refuses the archiver that had it before."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import Connection
from sqlalchemy.exc import DBAPIError, OperationalError

from datp_tasks.errors import ArchiveRefused, RoleLost
from datp_tasks.record.database import is_conflict, is_outage
from datp_tasks.record.queries import Queries

#: SQLSTATEs of a statement that waited too long for a row: cancelled, or no lock.
WAITED_TOO_LONG = ("57014", "55P03")


class Query(Queries, topic="archiver_role"):
    guard: str


@dataclass(frozen=True, slots=True)
class ArchiverRole:
    node: str
    fence: int


def guard(connection: Connection, role: ArchiverRole) -> datetime:
    """In the transaction of each write: one at a time, and none with an old fence. The time."""
    values = {"fence": role.fence, "node": role.node}
    try:
        granted = connection.exec_driver_sql(Query.guard, values).first()
    except OperationalError as error:
        if getattr(error.orig, "pgcode", None) in WAITED_TOO_LONG:
            raise RoleLost("another archiver is in the middle of a write; this one ends") from error
        raise
    if granted is None:
        raise RoleLost("another node archives by now; this one was too slow")
    now: datetime = granted.now
    return now


@contextmanager
def translate_refusal() -> Iterator[None]:
    """ArchiveRefused for what PostgreSQL refuses or does not do in time; an outage, or another
    transaction in the way, is raised as it is."""
    try:
        yield
    except DBAPIError as error:
        if isinstance(error, OperationalError) and (is_outage(error) or is_conflict(error)):
            raise
        # Not from that error: its other lines may quote what the rows hold.
        raise ArchiveRefused(str(error.orig).strip().partition("\n")[0]) from None
    except ValueError as error:
        # The driver refuses a NUL or half of a character before PostgreSQL sees it.
        raise ArchiveRefused(type(error).__name__) from None
