"""Four eyes: what was asked for, who decided, and which transactions it is about."""

from __future__ import annotations

from alembic import op

revision = "0011"
down_revision = "0010"
branch_labels = None
depends_on = None

UPGRADE = """
CREATE TABLE approval (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    action text NOT NULL,
    subject text NOT NULL,
    params json NOT NULL,
    params_hash text NOT NULL,
    version text NOT NULL,
    requested_by text NOT NULL,
    requester text NOT NULL,
    reason text NOT NULL,
    pipeline text,
    size integer,
    needed integer NOT NULL,
    role text NOT NULL,
    persons json NOT NULL,
    break_glass boolean NOT NULL DEFAULT false,
    step_key text,
    state text NOT NULL DEFAULT 'pending',
    note text,
    token text,
    created_at timestamptz NOT NULL,
    expires_at timestamptz NOT NULL,
    decided_at timestamptz,
    executed_at timestamptz,
    closed_by text,
    closed_at timestamptz,
    db_role text NOT NULL DEFAULT SESSION_USER,
    CONSTRAINT approval_requested UNIQUE (id, requested_by),
    CONSTRAINT approval_state CHECK (
        state IN ('pending', 'approved', 'executed', 'rejected', 'expired', 'stale')),
    CONSTRAINT approval_needed CHECK (needed >= 1),
    CONSTRAINT approval_decided CHECK ((state = 'pending') = (decided_at IS NULL)),
    CONSTRAINT approval_executed CHECK ((state = 'executed') = (executed_at IS NOT NULL)),
    CONSTRAINT approval_closed_by_another CHECK (closed_by <> requested_by)
);
CREATE UNIQUE INDEX approval_asked_once ON approval (action, subject, params_hash)
    WHERE state = 'pending' AND step_key IS NULL;
CREATE UNIQUE INDEX approval_one_at_a_time ON approval (subject)
    WHERE state = 'approved' AND step_key IS NULL;
CREATE UNIQUE INDEX approval_step ON approval (step_key) WHERE step_key IS NOT NULL;
CREATE INDEX approval_due ON approval (expires_at) WHERE state = 'pending';
CREATE INDEX approval_undone ON approval (decided_at) WHERE state = 'approved';
CREATE INDEX approval_subject ON approval (subject);
CREATE INDEX approval_listed ON approval (created_at, id);

CREATE TABLE approval_decision (
    approval_id bigint NOT NULL,
    requested_by text NOT NULL,
    decided_by text NOT NULL,
    actor text NOT NULL,
    role text NOT NULL,
    decision text NOT NULL,
    note text NOT NULL,
    created_at timestamptz NOT NULL,
    db_role text NOT NULL DEFAULT SESSION_USER,
    PRIMARY KEY (approval_id, decided_by),
    CONSTRAINT approval_decision_of FOREIGN KEY (approval_id, requested_by)
        REFERENCES approval (id, requested_by),
    CONSTRAINT approval_decision_by_another CHECK (decided_by <> requested_by),
    CONSTRAINT approval_decision_kind CHECK (decision IN ('approve', 'reject'))
);

CREATE TABLE approval_item (
    approval_id bigint NOT NULL,
    tx_id text NOT NULL,
    state text NOT NULL DEFAULT 'open',
    sequence text,
    note text,
    PRIMARY KEY (approval_id, tx_id),
    CONSTRAINT approval_item_of FOREIGN KEY (approval_id) REFERENCES approval (id),
    CONSTRAINT approval_item_state CHECK (state IN ('open', 'taken', 'done', 'failed'))
);
CREATE INDEX approval_item_undone ON approval_item (approval_id, tx_id)
    WHERE state IN ('open', 'taken');
"""

DOWNGRADE = """
DROP TABLE approval_item;
DROP TABLE approval_decision;
DROP TABLE approval;
"""


def upgrade() -> None:
    op.execute(UPGRADE)


def downgrade() -> None:
    op.execute(DOWNGRADE)
