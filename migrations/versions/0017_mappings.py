"""Mappings that pipelines share, with their versions; webhooks in the original's shape."""

from __future__ import annotations

from alembic import op

revision = "0017"
down_revision = "0016"
branch_labels = None
depends_on = None

UPGRADE = """
CREATE TABLE mapping (
    name text PRIMARY KEY,
    version_in_use text,
    updated_at timestamptz NOT NULL DEFAULT now()
);
CREATE TABLE mapping_version (
    name text NOT NULL REFERENCES mapping (name),
    version text NOT NULL,
    content_hash text NOT NULL,
    definition text NOT NULL,
    state text NOT NULL,
    comment text,
    created_at timestamptz NOT NULL DEFAULT now(),
    committed_at timestamptz,
    PRIMARY KEY (name, version),
    CONSTRAINT mapping_version_state CHECK (state IN ('draft', 'committed')),
    CONSTRAINT mapping_version_committed
        CHECK ((state = 'committed') = (committed_at IS NOT NULL))
);
ALTER TABLE tx_summary ADD COLUMN webhook_style text;
"""


def upgrade() -> None:
    op.execute(UPGRADE)


def downgrade() -> None:
    op.execute("ALTER TABLE tx_summary DROP COLUMN webhook_style")
    op.execute("DROP TABLE mapping_version")
    op.execute("DROP TABLE mapping")
