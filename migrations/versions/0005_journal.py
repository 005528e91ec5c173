"""The journal of deltas, archived states and who may archive."""

from __future__ import annotations

from alembic import op

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None

UPGRADE = """
CREATE TABLE tx_journal (
    tx_id text NOT NULL,
    number integer NOT NULL,
    first_version bigint NOT NULL,
    last_version bigint NOT NULL,
    entries text NOT NULL,
    hash text NOT NULL,
    recorded_at timestamptz NOT NULL,
    PRIMARY KEY (tx_id, number),
    CONSTRAINT tx_journal_number CHECK (number >= 1)
);

CREATE INDEX tx_journal_age ON tx_journal (recorded_at);

CREATE TABLE live_mark (
    shard text PRIMARY KEY,
    value bigint NOT NULL
);

CREATE TABLE live_server (
    name text PRIMARY KEY,
    run_id text NOT NULL
);

CREATE TABLE tx_signal (
    tx_id text NOT NULL,
    name text NOT NULL,
    value text NOT NULL,
    created_at timestamptz NOT NULL,
    PRIMARY KEY (tx_id, name)
);
CREATE INDEX tx_signal_age ON tx_signal (created_at);

CREATE TABLE archive_role (
    name text PRIMARY KEY,
    fence bigint NOT NULL,
    node text NOT NULL,
    granted_at timestamptz NOT NULL
);

CREATE TABLE step_begun (
    tx_id text NOT NULL,
    step_key text NOT NULL,
    fence bigint NOT NULL,
    begun_at timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (tx_id, step_key)
);

ALTER TABLE tx_state ADD COLUMN status text;
UPDATE tx_state SET status = fields ->> 'status';
ALTER TABLE tx_state ALTER COLUMN status SET NOT NULL;
CREATE INDEX tx_state_age ON tx_state (archived_at);
"""


def upgrade() -> None:
    op.execute(UPGRADE)


def downgrade() -> None:
    op.execute("DROP INDEX tx_state_age")
    op.execute("ALTER TABLE tx_state DROP COLUMN status")
    tables = ("step_begun", "archive_role", "tx_signal", "live_server", "live_mark", "tx_journal")
    for table in tables:
        op.execute(f"DROP TABLE {table}")
