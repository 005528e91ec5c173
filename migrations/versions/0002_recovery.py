"""Recovery: the journal, marks of steps that must not run twice, the archiver's role, alerts."""

from __future__ import annotations

from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None

UPGRADE = """
CREATE TABLE tx_journal (
    tx_id text NOT NULL,
    first_sequence bigint NOT NULL,
    last_sequence bigint NOT NULL,
    entries text NOT NULL,
    hash text NOT NULL,
    recorded_at timestamptz NOT NULL,
    PRIMARY KEY (tx_id, first_sequence),
    CONSTRAINT tx_journal_range CHECK (first_sequence >= 1 AND last_sequence >= first_sequence)
);
CREATE INDEX tx_journal_recorded ON tx_journal (recorded_at);

CREATE TABLE step_begun (
    tx_id text NOT NULL,
    step_key text NOT NULL,
    fence bigint NOT NULL,
    created_at timestamptz NOT NULL,
    PRIMARY KEY (tx_id, step_key)
);

CREATE TABLE archive_role (
    name text PRIMARY KEY,
    fence bigint NOT NULL,
    holder text NOT NULL,
    since timestamptz NOT NULL
);

CREATE TABLE live_mark (
    name text PRIMARY KEY,
    value text NOT NULL,
    updated_at timestamptz NOT NULL DEFAULT now()
);

CREATE TABLE alert (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    kind text NOT NULL,
    subject text NOT NULL,
    summary text NOT NULL,
    created_at timestamptz NOT NULL DEFAULT now(),
    cleared_at timestamptz
);
CREATE UNIQUE INDEX alert_open ON alert (kind, subject) WHERE cleared_at IS NULL;

CREATE INDEX tx_state_archived ON tx_state (archived_at);
"""

TABLES = ("alert", "live_mark", "archive_role", "step_begun", "tx_journal")


def upgrade() -> None:
    op.execute(UPGRADE)


def downgrade() -> None:
    op.execute("DROP INDEX tx_state_archived")
    for table in TABLES:
        op.execute(f"DROP TABLE {table}")
