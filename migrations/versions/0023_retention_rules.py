"""Retention by owner and by pipeline."""

from __future__ import annotations

from alembic import op

revision = "0023"
down_revision = "0022"
branch_labels = None
depends_on = None

UPGRADE = """
CREATE TABLE retention_rule (
    kind text NOT NULL,
    name text NOT NULL,
    days integer NOT NULL,
    changed_at timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (kind, name),
    CONSTRAINT retention_rule_kind CHECK (kind IN ('owner', 'pipeline')),
    CONSTRAINT retention_rule_days CHECK (days BETWEEN 1 AND 36500)
);
"""


def upgrade() -> None:
    op.execute(UPGRADE)


def downgrade() -> None:
    op.execute("DROP TABLE retention_rule")
