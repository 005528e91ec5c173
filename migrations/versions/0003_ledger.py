"""Ledgers: services, instances, claims, batches, attempts, and the states that were seen."""

from __future__ import annotations

from alembic import op

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None

UPGRADE = """
CREATE TABLE ledger_service (
    service_id text PRIMARY KEY,
    kind text NOT NULL,
    url text NOT NULL,
    last_seq bigint NOT NULL DEFAULT 0,
    created_at timestamptz NOT NULL
);

CREATE TABLE ledger_instance (
    instance text PRIMARY KEY,
    expiry timestamptz NOT NULL,
    slow_expiry timestamptz NOT NULL,
    joined_at timestamptz NOT NULL,
    CONSTRAINT ledger_instance_phases CHECK (slow_expiry >= expiry)
);

CREATE TABLE service_claim (
    service_id text PRIMARY KEY REFERENCES ledger_service (service_id),
    claimant text,
    epoch bigint NOT NULL DEFAULT 0,
    claimed_at timestamptz,
    due_at timestamptz NOT NULL DEFAULT 'infinity',
    CONSTRAINT service_claim_claimed CHECK ((claimant IS NULL) = (claimed_at IS NULL))
);
CREATE INDEX service_claim_due ON service_claim (claimant, due_at);

CREATE TABLE ledger_batch (
    service_id text NOT NULL REFERENCES ledger_service (service_id),
    batch_id text NOT NULL,
    seq bigint NOT NULL,
    owner text NOT NULL,
    fingerprint text NOT NULL,
    payload bytea NOT NULL,
    state text NOT NULL DEFAULT 'NEW',
    claim_epoch bigint NOT NULL DEFAULT 0,
    attempts integer NOT NULL DEFAULT 0,
    possible integer NOT NULL DEFAULT 0,
    resubmits integer NOT NULL DEFAULT 0,
    next_at timestamptz NOT NULL,
    grace_until timestamptz NOT NULL DEFAULT '-infinity',
    polls integer NOT NULL DEFAULT 0,
    unknown_seen integer NOT NULL DEFAULT 0,
    receipt json,
    note text,
    tx_id text,
    switch text,
    created_at timestamptz NOT NULL,
    final_at timestamptz,
    PRIMARY KEY (service_id, batch_id),
    CONSTRAINT ledger_batch_seq UNIQUE (service_id, seq),
    CONSTRAINT ledger_batch_state CHECK (state IN (
        'COMMITTED', 'DELAYED', 'INVALID', 'NEW', 'PARKED', 'PENDING', 'REFUSED', 'SUBMITTING',
        'UNKNOWN', 'VALID')),
    CONSTRAINT ledger_batch_final CHECK (
        (state IN ('COMMITTED', 'INVALID', 'REFUSED')) = (final_at IS NOT NULL)),
    CONSTRAINT ledger_batch_possible CHECK (possible BETWEEN 0 AND attempts)
);
-- The serial rule: at most one batch of a service is on its way.
CREATE UNIQUE INDEX ledger_batch_one_open ON ledger_batch (service_id)
    WHERE state IN ('DELAYED', 'PENDING', 'SUBMITTING', 'UNKNOWN', 'VALID');
CREATE INDEX ledger_batch_head ON ledger_batch (service_id, seq) WHERE final_at IS NULL;
CREATE INDEX ledger_batch_late ON ledger_batch (next_at) WHERE state = 'SUBMITTING';
CREATE INDEX ledger_batch_ask ON ledger_batch (next_at)
    WHERE state IN ('INVALID', 'PENDING', 'UNKNOWN', 'VALID') AND next_at < 'infinity';

CREATE TABLE batch_attempt (
    service_id text NOT NULL,
    batch_id text NOT NULL,
    attempt integer NOT NULL,
    epoch bigint NOT NULL,
    sender text NOT NULL,
    begun_at timestamptz NOT NULL,
    ended_at timestamptz,
    verdict text,
    http_status integer,
    note text,
    PRIMARY KEY (service_id, batch_id, attempt),
    CONSTRAINT batch_attempt_verdict CHECK (verdict IN ('accepted', 'refused', 'unsure')),
    CONSTRAINT batch_attempt_ended CHECK ((verdict IS NULL) = (ended_at IS NULL))
);

CREATE TABLE batch_status (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    service_id text NOT NULL,
    batch_id text NOT NULL,
    state text NOT NULL,
    source text NOT NULL,
    note text,
    seen_at timestamptz NOT NULL,
    CONSTRAINT batch_status_state CHECK (state IN (
        'COMMITTED', 'DELAYED', 'INVALID', 'NEW', 'PARKED', 'PENDING', 'REFUSED', 'SUBMITTING',
        'UNKNOWN', 'VALID'))
);
CREATE INDEX batch_status_batch ON batch_status (service_id, batch_id, id);
"""

TABLES = (
    "batch_status",
    "batch_attempt",
    "ledger_batch",
    "service_claim",
    "ledger_instance",
    "ledger_service",
)


def upgrade() -> None:
    op.execute(UPGRADE)


def downgrade() -> None:
    for table in TABLES:
        op.execute(f"DROP TABLE {table}")
