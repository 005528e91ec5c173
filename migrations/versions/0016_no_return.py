"""The point of no return: expiry, cancel and that point are decided by one row."""

from __future__ import annotations

from alembic import op

revision = "0016"
down_revision = "0015"
branch_labels = None
depends_on = None

UPGRADE = """
ALTER TABLE tx_summary
    ADD COLUMN no_return_at timestamptz,
    ADD COLUMN forwarded_at timestamptz,
    ADD COLUMN stop_request text;
ALTER TABLE tx_summary
    ADD CONSTRAINT tx_summary_one_way CHECK (
        (no_return_at IS NULL AND forwarded_at IS NULL)
        OR (expiring_at IS NULL AND stop_request IS NULL)) NOT VALID,
    ADD CONSTRAINT tx_summary_no_return CHECK (
        no_return_at IS NULL OR status NOT IN ('cancelled', 'expired')) NOT VALID;
ALTER TABLE tx_summary VALIDATE CONSTRAINT tx_summary_one_way;
ALTER TABLE tx_summary VALIDATE CONSTRAINT tx_summary_no_return;
"""


def upgrade() -> None:
    op.execute(UPGRADE)


def downgrade() -> None:
    op.execute(
        "ALTER TABLE tx_summary DROP CONSTRAINT tx_summary_no_return, "
        "DROP CONSTRAINT tx_summary_one_way"
    )
    op.execute(
        "ALTER TABLE tx_summary DROP COLUMN stop_request, DROP COLUMN forwarded_at, "
        "DROP COLUMN no_return_at"
    )
