"""What an owner asks for does not cost what others have."""

from __future__ import annotations

import pytest
from sqlalchemy import text

from datp_tasks.record.webhooks import Query
from datp_tasks.testing import Kit

FILL = """
INSERT INTO webhook_delivery (id, tx_id, sequence, kind, owner, url, target, payload, begun_at,
                              next_at, created_at)
SELECT 'm' || n, 't' || n, 1, 'final', 'owner-' || n % 200, 'u', 'u', '{}', t, t, t
FROM (SELECT n, now() + n * interval '1 s' AS t FROM generate_series(1, 20000) n) rows;
ANALYZE webhook_delivery
"""


@pytest.mark.parametrize("state", [None, "delivered"])
def test_deliveries_of_an_owner_are_found_by_an_index(datp: Kit, state: str | None) -> None:
    values = {"owner": "owner-7", "state": state, "tx_id": None, "before": None, "before_id": ""}
    with datp.connections.engine.begin() as sql:
        sql.execute(text(FILL))
        rows = sql.exec_driver_sql(f"EXPLAIN {Query.list_deliveries}", {**values, "limit": 100})
        plan = "\n".join(row[0] for row in rows)
    assert "webhook_delivery_owner" in plan, plan
