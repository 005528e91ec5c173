"""Events that clients are told of, and webhooks on their way."""

from __future__ import annotations

from alembic import op

revision = "0006"
down_revision = "0005"
branch_labels = None
depends_on = None

UPGRADE = """
ALTER TABLE tx_summary
    ADD COLUMN webhook text,
    ADD COLUMN progress_reports boolean NOT NULL DEFAULT false,
    ADD COLUMN cancel_webhook_on_poll boolean NOT NULL DEFAULT false,
    ADD COLUMN event_count integer NOT NULL DEFAULT 0,
    ADD COLUMN notified_at timestamptz;

CREATE TABLE tx_event (
    tx_id text NOT NULL,
    sequence integer NOT NULL,
    kind text NOT NULL,
    payload json NOT NULL,
    created_at timestamptz NOT NULL,
    PRIMARY KEY (tx_id, sequence),
    CONSTRAINT tx_event_sequence CHECK (sequence >= 1),
    CONSTRAINT tx_event_kind CHECK (kind IN ('progress'))
);

CREATE TABLE webhook_delivery (
    id text PRIMARY KEY,
    tx_id text NOT NULL,
    sequence integer NOT NULL,
    kind text NOT NULL,
    owner text NOT NULL,
    url text NOT NULL,
    target text NOT NULL,
    payload text NOT NULL,
    state text NOT NULL DEFAULT 'pending',
    attempts integer NOT NULL DEFAULT 0,
    attempts_before integer NOT NULL DEFAULT 0,
    begun_at timestamptz NOT NULL,
    next_at timestamptz NOT NULL,
    held boolean NOT NULL DEFAULT false,
    created_at timestamptz NOT NULL,
    first_attempt_at timestamptz,
    finished_at timestamptz,
    last_status integer,
    last_error text,
    CONSTRAINT webhook_delivery_event UNIQUE (tx_id, sequence),
    CONSTRAINT webhook_delivery_kind CHECK (kind IN ('progress', 'final')),
    CONSTRAINT webhook_delivery_state CHECK (
        state IN ('pending', 'delivered', 'dead', 'cancelled')),
    CONSTRAINT webhook_delivery_finished CHECK ((state = 'pending') = (finished_at IS NULL))
);
CREATE INDEX webhook_delivery_due ON webhook_delivery (next_at) WHERE state = 'pending';
CREATE INDEX webhook_delivery_held ON webhook_delivery (target) WHERE held;
CREATE INDEX webhook_delivery_dead ON webhook_delivery (created_at) WHERE state = 'dead';
CREATE INDEX webhook_delivery_created ON webhook_delivery (created_at);

CREATE TABLE webhook_attempt (
    delivery_id text NOT NULL,
    attempt integer NOT NULL,
    sender text NOT NULL,
    begun_at timestamptz NOT NULL,
    ended_at timestamptz,
    http_status integer,
    error text,
    took_ms integer,
    PRIMARY KEY (delivery_id, attempt)
);

CREATE TABLE webhook_secret (
    id integer GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    owner text NOT NULL,
    secret text NOT NULL,
    created_at timestamptz NOT NULL,
    retired_at timestamptz
);
CREATE UNIQUE INDEX webhook_secret_current ON webhook_secret (owner) WHERE retired_at IS NULL;
CREATE INDEX webhook_secret_owner ON webhook_secret (owner, created_at);

CREATE TABLE webhook_target (
    target text PRIMARY KEY,
    disabled_at timestamptz NOT NULL,
    disabled_until timestamptz NOT NULL,
    reason text NOT NULL
);
"""

TABLES = (*("webhook_target", "webhook_secret", "webhook_attempt", "webhook_delivery", "tx_event"),)
COLUMNS = (
    *("webhook", "progress_reports", "cancel_webhook_on_poll", "event_count", "notified_at"),
)


def upgrade() -> None:
    op.execute(UPGRADE)


def downgrade() -> None:
    for table in TABLES:
        op.execute(f"DROP TABLE {table}")
    for column in COLUMNS:
        op.execute(f"ALTER TABLE tx_summary DROP COLUMN {column}")
