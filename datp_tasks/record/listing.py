"""Looking through transactions: pages of summaries, and what has news."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime

from sqlalchemy import Engine

from datp_tasks.record.transactions_sql import SUMMARIES
from datp_tasks.record.types import Summary, summary_from_row

CONDITIONS = """
  AND coalesce(status = ANY(%(statuses)s::text[]), true)
  AND coalesce(pipeline = %(pipeline)s, true)
  AND (%(since)s::timestamptz IS NULL OR created_at >= %(since)s::timestamptz)
  AND (%(until)s::timestamptz IS NULL OR created_at < %(until)s::timestamptz)
  AND (%(after)s::timestamptz IS NULL
       OR (created_at, tx_id) < (%(after)s::timestamptz, %(after_id)s))
ORDER BY created_at DESC, tx_id DESC LIMIT %(limit)s
"""

OF_OWNER = SUMMARIES + "WHERE owner = %(owner)s" + CONDITIONS

# The index begins with the owner; so the owners are taken from it one after the other, and the
# newest of each. That is a short read for each owner, however many transactions there are.
ALL_OWNERS = """
WITH RECURSIVE owners AS (
    (SELECT owner FROM tx_summary ORDER BY owner LIMIT 1)
    UNION ALL
    SELECT (SELECT s.owner FROM tx_summary s WHERE s.owner > o.owner ORDER BY s.owner LIMIT 1)
    FROM owners o WHERE o.owner IS NOT NULL
)
SELECT found.* FROM owners o CROSS JOIN LATERAL (<newest>) found
WHERE o.owner IS NOT NULL ORDER BY created_at DESC, tx_id DESC LIMIT %(limit)s
"""
OF_ALL = ALL_OWNERS.replace("<newest>", SUMMARIES + "WHERE owner = o.owner" + CONDITIONS)

SEQUENCES = """
SELECT tx_id, event_count + (completed_at IS NOT NULL)::integer AS sequence
FROM tx_summary WHERE tx_id = ANY(%(tx_id)s)
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """Which transactions, the newest first. Empty and None mean any."""

    owner: str | None = None
    #: As the record has them: what goes on is `queued` there, or `in-doubt`.
    statuses: Sequence[str] = field(default=())
    pipeline: str | None = None
    since: datetime | None = None
    until: datetime | None = None
    #: Creation time and id of the last one of the page before.
    after: tuple[datetime, str] | None = None
    rows_max: int = 50


class Listing:
    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def page(self, wanted: Wanted) -> list[Summary]:
        after, after_id = wanted.after or (None, "")
        values = {
            "owner": wanted.owner,
            "statuses": list(wanted.statuses) or None,
            "pipeline": wanted.pipeline,
            "since": wanted.since,
            "until": wanted.until,
            "after": after,
            "after_id": after_id,
            "limit": wanted.rows_max,
        }
        sql = OF_ALL if wanted.owner is None else OF_OWNER
        with self._engine.connect() as connection:
            return [summary_from_row(row) for row in connection.exec_driver_sql(sql, values)]

    def sequences(self, tx_ids: Sequence[str]) -> dict[str, int]:
        """The number of the last event of each; 0 if nothing was reported yet."""
        with self._engine.connect() as connection:
            rows = connection.exec_driver_sql(SEQUENCES, {"tx_id": list(tx_ids)})
            return {row.tx_id: row.sequence for row in rows}
