"""What keeps the tables in shape: early vacuums, and marks and indexes for dropping what is old."""

from __future__ import annotations

from alembic import op

revision = "0009"
down_revision = "0008"
branch_labels = None
depends_on = None

#: Vacuumed after 1 % of dead rows: PostgreSQL's 20 % of a large table are millions of dead entries
#: in indexes that every look at what is open passes over.
HOT = (
    "tx_summary",
    "tx_state",
    "tx_state_change",
    "tx_timeout",
    "tx_journal",
    "tx_signal",
    "tx_event",
    "step_effect",
    "step_begun",
    "webhook_delivery",
    "webhook_attempt",
    "ledger_batch",
    "batch_attempt",
    "batch_status",
)
VACUUM = (
    "autovacuum_vacuum_scale_factor = 0.01, autovacuum_vacuum_threshold = 1000, "
    "autovacuum_analyze_scale_factor = 0.02, autovacuum_analyze_threshold = 1000"
)
#: Updated in place without touching an index (fences, progress, marks): room for that in the page.
FILLFACTOR = {"tx_summary": 85, "live_mark": 50, "archive_role": 50, "segment": 50}

UPGRADE = """
CREATE TABLE job_mark (
    name text PRIMARY KEY,
    moment timestamptz NOT NULL,
    tx_id text NOT NULL,
    number integer NOT NULL DEFAULT 0
);
CREATE INDEX tx_summary_completed ON tx_summary (completed_at) WHERE completed_at IS NOT NULL;
CREATE INDEX ledger_batch_ended ON ledger_batch (final_at) WHERE final_at IS NOT NULL;
"""


def upgrade() -> None:
    op.execute(UPGRADE)
    for table in HOT:
        op.execute(f"ALTER TABLE {table} SET ({VACUUM})")
    for table, percent in FILLFACTOR.items():
        op.execute(f"ALTER TABLE {table} SET (fillfactor = {percent})")


def downgrade() -> None:
    for table in FILLFACTOR:
        op.execute(f"ALTER TABLE {table} RESET (fillfactor)")
    names = ", ".join(part.split(" = ")[0] for part in VACUUM.split(", "))
    for table in HOT:
        op.execute(f"ALTER TABLE {table} RESET ({names})")
    op.execute("DROP INDEX ledger_batch_ended")
    op.execute("DROP INDEX tx_summary_completed")
    op.execute("DROP TABLE job_mark")
