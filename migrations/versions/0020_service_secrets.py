"""A ledger service may have a credential of its own: the name of a sealed secret."""

from __future__ import annotations

from alembic import op

revision = "0020"
down_revision = "0019"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.execute("ALTER TABLE ledger_service ADD COLUMN secret text")


def downgrade() -> None:
    op.execute("ALTER TABLE ledger_service DROP COLUMN secret")
