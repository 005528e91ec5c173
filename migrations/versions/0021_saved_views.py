"""Saved views of the console, and the list of what did not end well."""

from __future__ import annotations

from alembic import op

revision = "0021"
down_revision = "0020"
branch_labels = None
depends_on = None

UPGRADE = """
CREATE TABLE saved_view (
    person text NOT NULL,
    name text NOT NULL,
    query text NOT NULL,
    changed_at timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (person, name)
);
CREATE INDEX tx_summary_unsuccessful ON tx_summary (created_at, tx_id)
    WHERE completed_at IS NOT NULL AND status <> 'success';
"""


def upgrade() -> None:
    op.execute(UPGRADE)


def downgrade() -> None:
    op.execute("DROP INDEX tx_summary_unsuccessful")
    op.execute("DROP TABLE saved_view")
