"""Idempotency keys, and search attributes of transactions."""

from __future__ import annotations

from alembic import op

revision = "0025"
down_revision = "0024"
branch_labels = None
depends_on = None

UPGRADE = """
CREATE TABLE idempotency_key (
    owner text NOT NULL,
    key text NOT NULL,
    request_hash text NOT NULL,
    begun_at timestamptz NOT NULL,
    held_until timestamptz NOT NULL,
    status integer,
    headers json,
    body text,
    tx_id text,
    PRIMARY KEY (owner, key),
    CONSTRAINT idempotency_key_answered CHECK ((status IS NULL) = (headers IS NULL))
);
CREATE INDEX idempotency_key_age ON idempotency_key (begun_at);
CREATE TABLE tx_attribute (
    tx_id text NOT NULL,
    owner text NOT NULL,
    name text NOT NULL,
    value text COLLATE "C" NOT NULL,
    PRIMARY KEY (tx_id, name)
);
CREATE INDEX tx_attribute_value ON tx_attribute (owner, name, value, tx_id);
"""


def upgrade() -> None:
    op.execute(UPGRADE)


def downgrade() -> None:
    op.execute("DROP TABLE tx_attribute")
    op.execute("DROP TABLE idempotency_key")
