"""A switch that a step has replaced is not set again after a loss of Redis."""

from __future__ import annotations

from alembic import op

revision = "0028"
down_revision = "0027"
branch_labels = None
depends_on = None


def upgrade() -> None:
    # What acts on an approval keeps its row locked and sends signals by another connection. The
    # next migration may be of the same transaction: it must not wait for approvals with signals
    # locked.
    op.execute("LOCK TABLE approval, approval_item IN ACCESS EXCLUSIVE MODE")
    op.execute("ALTER TABLE tx_signal ADD COLUMN replaced_seq bigint")


def downgrade() -> None:
    op.execute("ALTER TABLE tx_signal DROP COLUMN replaced_seq")
