"""Requests for approval about many are found by index when values are erased."""

from __future__ import annotations

from alembic import op

revision = "0031"
down_revision = "0030"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.execute("CREATE INDEX approval_bulk ON approval (id) WHERE starts_with(action, 'bulk.')")


def downgrade() -> None:
    op.execute("DROP INDEX approval_bulk")
