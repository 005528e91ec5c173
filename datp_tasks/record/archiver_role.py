"""Who may archive. Redis grants the role for a while; SQL refuses whoever had it before."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import Connection
from sqlalchemy.exc import OperationalError

from datp_tasks.errors import RoleLost

#: SQLSTATEs of a statement that waited too long for a row: cancelled, or no lock.
WAITED_TOO_LONG = ("57014", "55P03")

GUARD = """
INSERT INTO archive_role AS r (name, fence, node, granted_at)
VALUES ('archiver', %(fence)s, %(node)s, now())
ON CONFLICT (name) DO UPDATE SET fence = excluded.fence, node = excluded.node,
    granted_at = CASE WHEN r.fence = excluded.fence THEN r.granted_at ELSE now() END
WHERE r.fence <= excluded.fence
RETURNING now() AS now
"""


@dataclass(frozen=True, slots=True)
class Role:
    node: str
    fence: int


def guard(connection: Connection, role: Role) -> datetime:
    """In the transaction of each write: one at a time, and none with an old fence. The time."""
    values = {"fence": role.fence, "node": role.node}
    try:
        granted = connection.exec_driver_sql(GUARD, values).first()
    except OperationalError as error:
        if getattr(error.orig, "pgcode", None) in WAITED_TOO_LONG:
            raise RoleLost("another archiver is in the middle of a write; this one ends") from error
        raise
    if granted is None:
        raise RoleLost("another node archives by now; this one was too slow")
    now: datetime = granted.now
    return now
