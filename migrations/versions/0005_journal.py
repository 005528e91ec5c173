"""The journal of deltas, archived states and who may archive."""

from __future__ import annotations

from alembic import op

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None

UPGRADE = ""


def upgrade() -> None:
    if UPGRADE:
        op.execute(UPGRADE)


def downgrade() -> None:
    pass
