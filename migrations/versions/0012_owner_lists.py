"""An owner's webhook deliveries and open batches are found without reading those of others."""

from __future__ import annotations

from alembic import op

revision = "0012"
down_revision = "0011"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.execute("CREATE INDEX webhook_delivery_owner ON webhook_delivery (owner, created_at, id)")
    op.execute("CREATE INDEX ledger_batch_in_flight ON ledger_batch (owner) WHERE final_at IS NULL")


def downgrade() -> None:
    op.execute("DROP INDEX ledger_batch_in_flight")
    op.execute("DROP INDEX webhook_delivery_owner")
