"""Node groups."""

from __future__ import annotations

from alembic import op

revision = "0008"
down_revision = "0007"
branch_labels = None
depends_on = None

UPGRADE = ""


def upgrade() -> None:
    if UPGRADE:
        op.execute(UPGRADE)


def downgrade() -> None:
    pass
