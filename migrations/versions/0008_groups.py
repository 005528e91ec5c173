"""Node groups, and the place of a transaction in a trace."""

from __future__ import annotations

from alembic import op

revision = "0008"
down_revision = "0007"
branch_labels = None
depends_on = None

UPGRADE = """
ALTER TABLE tx_summary ADD COLUMN trace text;

CREATE TABLE node_group (
    name text PRIMARY KEY,
    concurrency integer,
    archive_batch_size integer,
    webhook_workers integer,
    wakeup_batch_size integer,
    ledger integer,
    webhook_pause_ms integer,
    webhook_pause_busy_ms integer,
    webhook_pause_idle_ms integer,
    updated_at timestamptz NOT NULL DEFAULT now(),
    CONSTRAINT node_group_concurrency CHECK (concurrency BETWEEN 0 AND 1000),
    CONSTRAINT node_group_archiving CHECK (archive_batch_size BETWEEN 0 AND 10000),
    CONSTRAINT node_group_webhooks CHECK (webhook_workers BETWEEN 0 AND 1000),
    CONSTRAINT node_group_wakeup CHECK (wakeup_batch_size BETWEEN 0 AND 100000),
    CONSTRAINT node_group_ledger CHECK (ledger BETWEEN 0 AND 1),
    CONSTRAINT node_group_pauses CHECK (
        webhook_pause_ms >= 0 AND webhook_pause_busy_ms >= 0 AND webhook_pause_idle_ms >= 0)
);
"""


def upgrade() -> None:
    op.execute(UPGRADE)


def downgrade() -> None:
    op.execute("DROP TABLE node_group")
    op.execute("ALTER TABLE tx_summary DROP COLUMN trace")
