"""Events that clients are told of, and webhooks on their way."""

from __future__ import annotations

from alembic import op

revision = "0006"
down_revision = "0005"
branch_labels = None
depends_on = None

UPGRADE = ""


def upgrade() -> None:
    if UPGRADE:
        op.execute(UPGRADE)


def downgrade() -> None:
    pass
