"""The engine's tables: pipelines, summaries, state changes, states, effects, operator actions."""

from __future__ import annotations

from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None

UPGRADE = """
CREATE TABLE pipeline (
    name text PRIMARY KEY,
    version_in_use text,
    disabled boolean NOT NULL DEFAULT false,
    updated_at timestamptz NOT NULL DEFAULT now()
);

CREATE TABLE pipeline_version (
    name text NOT NULL REFERENCES pipeline (name),
    version text NOT NULL,
    content_hash text NOT NULL,
    definition text NOT NULL,
    state text NOT NULL,
    comment text,
    created_at timestamptz NOT NULL DEFAULT now(),
    committed_at timestamptz,
    PRIMARY KEY (name, version),
    CONSTRAINT pipeline_version_state CHECK (state IN ('draft', 'committed')),
    CONSTRAINT pipeline_version_committed
        CHECK ((state = 'committed') = (committed_at IS NOT NULL))
);

CREATE TABLE tx_summary (
    tx_id text PRIMARY KEY,
    owner text NOT NULL,
    external_id text,
    fingerprint text NOT NULL,
    pipeline text NOT NULL,
    version text NOT NULL,
    status text NOT NULL,
    fence bigint NOT NULL DEFAULT 0,
    input json NOT NULL,
    metadata json,
    output json,
    progress json,
    note text,
    created_at timestamptz NOT NULL,
    completed_at timestamptz,
    expires_at timestamptz,
    CONSTRAINT tx_summary_status CHECK (status IN (
        'queued', 'running', 'sleeping', 'in-doubt',
        'success', 'failed', 'aborted', 'cancelled', 'expired', 'internal-error')),
    CONSTRAINT tx_summary_final CHECK (
        (status IN ('success', 'failed', 'aborted', 'cancelled', 'expired', 'internal-error'))
        = (completed_at IS NOT NULL))
);
CREATE UNIQUE INDEX tx_summary_external_id ON tx_summary (owner, external_id)
    WHERE external_id IS NOT NULL;
CREATE INDEX tx_summary_open ON tx_summary (created_at) WHERE completed_at IS NULL;

CREATE TABLE tx_state_change (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    tx_id text NOT NULL,
    status text NOT NULL,
    note text,
    created_at timestamptz NOT NULL,
    xact xid8 NOT NULL DEFAULT pg_current_xact_id(),
    CONSTRAINT tx_state_change_status CHECK (status IN (
        'queued', 'running', 'sleeping', 'in-doubt',
        'success', 'failed', 'aborted', 'cancelled', 'expired', 'internal-error'))
);
CREATE INDEX tx_state_change_tx ON tx_state_change (tx_id, id);

CREATE TABLE tx_state (
    tx_id text PRIMARY KEY,
    version bigint NOT NULL,
    fields json NOT NULL,
    archived_at timestamptz NOT NULL
);

CREATE TABLE step_effect (
    tx_id text NOT NULL,
    step_key text NOT NULL,
    fence bigint NOT NULL,
    output json,
    created_at timestamptz NOT NULL,
    PRIMARY KEY (tx_id, step_key)
);

CREATE TABLE operator_action (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    actor text NOT NULL,
    action text NOT NULL,
    subject text NOT NULL,
    reason text,
    details json,
    created_at timestamptz NOT NULL DEFAULT now()
);
"""

TABLES = (
    "operator_action",
    "step_effect",
    "tx_state",
    "tx_state_change",
    "tx_summary",
    "pipeline_version",
    "pipeline",
)


def upgrade() -> None:
    op.execute(UPGRADE)


def downgrade() -> None:
    for table in TABLES:
        op.execute(f"DROP TABLE {table}")
