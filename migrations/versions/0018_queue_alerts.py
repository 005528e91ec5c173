"""Node groups say from when on a transaction runs, or waits, for too long."""

from __future__ import annotations

from alembic import op

revision = "0018"
down_revision = "0017"
branch_labels = None
depends_on = None

UPGRADE = """
ALTER TABLE node_group
    ADD COLUMN long_running_s integer,
    ADD COLUMN queue_age_s integer,
    ADD CONSTRAINT node_group_waits CHECK (long_running_s >= 0 AND queue_age_s >= 0);
"""


def upgrade() -> None:
    op.execute(UPGRADE)


def downgrade() -> None:
    op.execute("ALTER TABLE node_group DROP COLUMN long_running_s, DROP COLUMN queue_age_s")
