"""Who may archive. Redis grants the role for a while; SQL refuses whoever had it before."""

from __future__ import annotations

from dataclasses import dataclass

from sqlalchemy import Connection

from datp_tasks.errors import RoleLost

GUARD = """
INSERT INTO archive_role AS r (name, fence, node, granted_at)
VALUES ('archiver', %(fence)s, %(node)s, now())
ON CONFLICT (name) DO UPDATE SET fence = excluded.fence, node = excluded.node,
    granted_at = CASE WHEN r.fence = excluded.fence THEN r.granted_at ELSE now() END
WHERE r.fence <= excluded.fence
RETURNING fence
"""


@dataclass(frozen=True, slots=True)
class Role:
    node: str
    fence: int


def guard(connection: Connection, role: Role) -> None:
    """In the transaction of each write: one at a time, and none with an old fence."""
    values = {"fence": role.fence, "node": role.node}
    if connection.exec_driver_sql(GUARD, values).first() is None:
        raise RoleLost("another node archives by now; this one was too slow")
