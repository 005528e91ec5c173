"""Webhook endpoints: registered by an owner, told of the events that it chose."""

from __future__ import annotations

from alembic import op

revision = "0022"
down_revision = "0021"
branch_labels = None
depends_on = None

UPGRADE = """
CREATE TABLE webhook_endpoint (
    id text PRIMARY KEY,
    owner text NOT NULL,
    url text NOT NULL,
    types json NOT NULL,
    description text NOT NULL,
    enabled boolean NOT NULL,
    disabled_reason text,
    created_at timestamptz NOT NULL,
    updated_at timestamptz NOT NULL,
    xact xid8 NOT NULL,
    part integer NOT NULL,
    row_id bigint NOT NULL,
    replay_xact xid8,
    replay_part integer,
    replay_row_id bigint,
    replay_from timestamptz,
    replay_to timestamptz,
    CONSTRAINT webhook_endpoint_replay CHECK (
        (replay_xact IS NULL) = (replay_to IS NULL)
        AND (replay_xact IS NULL) = (replay_from IS NULL))
);
CREATE INDEX webhook_endpoint_owner ON webhook_endpoint (owner, created_at, id);

ALTER TABLE webhook_delivery ADD COLUMN endpoint_id text, ADD COLUMN event_id text;
ALTER TABLE webhook_delivery DROP CONSTRAINT webhook_delivery_kind;
ALTER TABLE webhook_delivery ADD CONSTRAINT webhook_delivery_kind
    CHECK (kind IN ('progress', 'final', 'event', 'test')) NOT VALID;
ALTER TABLE webhook_delivery VALIDATE CONSTRAINT webhook_delivery_kind;
CREATE UNIQUE INDEX webhook_delivery_once ON webhook_delivery (endpoint_id, event_id)
WHERE endpoint_id IS NOT NULL;
CREATE INDEX webhook_delivery_endpoint ON webhook_delivery (endpoint_id, created_at, id)
WHERE endpoint_id IS NOT NULL;
-- It stays although deliveries have random numbers now: earlier releases draw from it.
CREATE SEQUENCE webhook_delivery_number MINVALUE 1000000000 MAXVALUE 2147483647 CYCLE;
"""

DOWNGRADE = """
DROP SEQUENCE webhook_delivery_number;
DELETE FROM webhook_attempt WHERE delivery_id IN (
    SELECT id FROM webhook_delivery WHERE endpoint_id IS NOT NULL);
DELETE FROM webhook_delivery WHERE endpoint_id IS NOT NULL;
ALTER TABLE webhook_delivery DROP COLUMN event_id, DROP COLUMN endpoint_id;
ALTER TABLE webhook_delivery DROP CONSTRAINT webhook_delivery_kind;
ALTER TABLE webhook_delivery ADD CONSTRAINT webhook_delivery_kind
    CHECK (kind IN ('progress', 'final'));
DROP TABLE webhook_endpoint;
"""


def upgrade() -> None:
    op.execute(UPGRADE)


def downgrade() -> None:
    op.execute(DOWNGRADE)
