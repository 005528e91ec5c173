"""Timeouts: what the log says of expiry, how far it was read, and what may expire."""

from __future__ import annotations

from alembic import op

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None

UPGRADE = """
ALTER TABLE tx_summary ADD COLUMN expiring_at timestamptz;

ALTER TABLE tx_state_change ADD COLUMN detail text, ADD COLUMN expires_at timestamptz;
CREATE INDEX tx_state_change_window ON tx_state_change (xact, id) WHERE expires_at IS NOT NULL;

CREATE TABLE segment (
    segment_type text NOT NULL,
    enumeration integer NOT NULL DEFAULT 0,
    table_name text NOT NULL,
    xact xid8 NOT NULL,
    value bigint NOT NULL,
    changed_at timestamptz NOT NULL,
    PRIMARY KEY (segment_type, enumeration, table_name)
);

CREATE TABLE tx_timeout (
    tx_id text PRIMARY KEY,
    expires_at timestamptz NOT NULL,
    due_at timestamptz NOT NULL,
    asked text,
    asked_at timestamptz,
    created_at timestamptz NOT NULL,
    CONSTRAINT tx_timeout_due_later CHECK (due_at >= expires_at),
    CONSTRAINT tx_timeout_asked CHECK ((asked IS NULL) = (asked_at IS NULL))
);
CREATE INDEX tx_timeout_due ON tx_timeout (due_at);
"""


def upgrade() -> None:
    op.execute(UPGRADE)


def downgrade() -> None:
    op.execute("DROP TABLE tx_timeout")
    op.execute("DROP TABLE segment")
    op.execute("DROP INDEX tx_state_change_window")
    op.execute("ALTER TABLE tx_state_change DROP COLUMN expires_at, DROP COLUMN detail")
    op.execute("ALTER TABLE tx_summary DROP COLUMN expiring_at")
