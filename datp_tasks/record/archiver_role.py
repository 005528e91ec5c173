"""The archiver's role. Redis grants it for a while; SQL refuses the archiver that had it before."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import Connection
from sqlalchemy.exc import OperationalError

from datp_tasks.errors import RoleLost
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
