"""Audits and erasures that operators start over HTTP, and that a job does in parts."""

from __future__ import annotations

from alembic import op

revision = "0030"
down_revision = "0029"
branch_labels = None
depends_on = None

UPGRADE = """
CREATE TABLE operator_run (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    kind text NOT NULL,
    state text NOT NULL DEFAULT 'running',
    params json NOT NULL,
    subject json,
    progress json NOT NULL,
    reason text,
    requester json NOT NULL,
    note text,
    created_at timestamptz NOT NULL,
    ended_at timestamptz,
    CONSTRAINT operator_run_kind CHECK (kind IN ('audit', 'erasure')),
    CONSTRAINT operator_run_state CHECK (state IN ('running', 'done', 'failed')),
    CONSTRAINT operator_run_ended CHECK ((state = 'running') = (ended_at IS NULL)),
    CONSTRAINT operator_run_subject_gone CHECK (state = 'running' OR subject IS NULL)
);
CREATE UNIQUE INDEX operator_run_one_at_a_time ON operator_run (kind) WHERE state = 'running';
CREATE INDEX operator_run_listed ON operator_run (kind, id);
"""


def upgrade() -> None:
    op.execute(UPGRADE)


def downgrade() -> None:
    op.execute("DROP TABLE operator_run")
