"""What the log of state changes tells of one transaction, in order."""

from __future__ import annotations

from sqlalchemy import text

from datp_tasks.testing import Kit

PREPARED = ["queued", "EXPIRED_PREPARED"]
RESERVED = ["queued", "RESERVED_TIMEOUT", "EXPIRED_RESERVED"]


def history(datp: Kit, tx_id: str) -> list[str]:
    """The names of the seed where there are any, else the statuses."""
    query = "SELECT coalesce(detail, status) FROM tx_state_change WHERE tx_id = :tx ORDER BY id"
    with datp.connections.engine.connect() as sql:
        return list(sql.execute(text(query), {"tx": tx_id}).scalars())


def watched(datp: Kit) -> list[str]:
    with datp.connections.engine.connect() as sql:
        return list(sql.execute(text("SELECT tx_id FROM tx_timeout")).scalars())


def alerts(datp: Kit, kind: str) -> list[str]:
    query = "SELECT summary FROM alert WHERE kind = :kind AND cleared_at IS NULL"
    with datp.connections.engine.connect() as sql:
        return list(sql.execute(text(query), {"kind": kind}).scalars())
