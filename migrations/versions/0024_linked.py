"""Linked transactions: which link a transaction is a leg of, and whether it is ready to commit."""

from __future__ import annotations

from alembic import op

revision = "0024"
down_revision = "0023"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.execute(
        "ALTER TABLE tx_summary ADD COLUMN link_id text, ADD COLUMN link_size integer, "
        "ADD COLUMN link_ready_at timestamptz"
    )
    op.execute(
        "CREATE INDEX tx_summary_link ON tx_summary (owner, link_id) WHERE link_id IS NOT NULL"
    )


def downgrade() -> None:
    op.execute("DROP INDEX tx_summary_link")
    op.execute(
        "ALTER TABLE tx_summary DROP COLUMN link_ready_at, DROP COLUMN link_size, "
        "DROP COLUMN link_id"
    )
