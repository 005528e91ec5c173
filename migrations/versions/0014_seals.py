"""Keys for sealed payloads, and secrets for the parameters of pipelines."""

from __future__ import annotations

from alembic import op

revision = "0014"
down_revision = "0013"
branch_labels = None
depends_on = None

UPGRADE = """
CREATE TABLE data_key (
    id text PRIMARY KEY,
    owner text NOT NULL,
    sealed text NOT NULL,
    created_at timestamptz NOT NULL
);
CREATE INDEX data_key_owner ON data_key (owner, created_at);
CREATE TABLE sealed_secret (
    name text PRIMARY KEY,
    sealed text NOT NULL,
    created_at timestamptz NOT NULL,
    changed_at timestamptz NOT NULL
);
"""


def upgrade() -> None:
    op.execute(UPGRADE)


def downgrade() -> None:
    op.execute("DROP TABLE sealed_secret")
    op.execute("DROP TABLE data_key")
