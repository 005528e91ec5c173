"""What erasing the payloads of a transaction leaves behind: its time, and hashes of what went."""

from __future__ import annotations

from alembic import op

revision = "0015"
down_revision = "0014"
branch_labels = None
depends_on = None

UPGRADE = """
ALTER TABLE tx_summary ADD COLUMN erased_at timestamptz;
ALTER TABLE tx_summary ADD CONSTRAINT tx_summary_erased
    CHECK (erased_at IS NULL OR completed_at IS NOT NULL);
ALTER TABLE tx_journal ADD COLUMN content_hash text;
ALTER TABLE tx_journal ADD COLUMN erased_hash text;
ALTER TABLE tx_journal ADD CONSTRAINT tx_journal_erased
    CHECK ((content_hash IS NULL) = (erased_hash IS NULL));
CREATE INDEX ledger_batch_tx ON ledger_batch (tx_id) WHERE tx_id IS NOT NULL;
"""

DOWNGRADE = """
DROP INDEX ledger_batch_tx;
ALTER TABLE tx_journal DROP COLUMN erased_hash;
ALTER TABLE tx_journal DROP COLUMN content_hash;
ALTER TABLE tx_summary DROP COLUMN erased_at;
"""


def upgrade() -> None:
    op.execute(UPGRADE)


def downgrade() -> None:
    op.execute(DOWNGRADE)
