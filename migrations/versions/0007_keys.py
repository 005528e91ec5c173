"""API keys, and the limits of their owners."""

from __future__ import annotations

from alembic import op

revision = "0007"
down_revision = "0006"
branch_labels = None
depends_on = None

UPGRADE = """
CREATE TABLE api_key (
    id text PRIMARY KEY,
    owner text NOT NULL,
    scope text NOT NULL,
    name text,
    secret_hash text NOT NULL,
    created_at timestamptz NOT NULL,
    expires_at timestamptz,
    revoked_at timestamptz,
    last_used_at timestamptz,
    CONSTRAINT api_key_scope CHECK (scope IN ('client', 'operator'))
);
CREATE INDEX api_key_owner ON api_key (owner);

CREATE TABLE owner_limit (
    owner text PRIMARY KEY,
    requests_per_s double precision,
    burst_max integer,
    in_flight_max integer,
    changed_at timestamptz NOT NULL DEFAULT now(),
    CONSTRAINT owner_limit_requests CHECK (requests_per_s > 0),
    CONSTRAINT owner_limit_burst CHECK (burst_max > 0),
    CONSTRAINT owner_limit_in_flight CHECK (in_flight_max >= 0)
);

-- What an owner has in flight, and what it has sent, the newest first.
CREATE INDEX tx_summary_in_flight ON tx_summary (owner) WHERE completed_at IS NULL;
CREATE INDEX tx_summary_listed ON tx_summary (owner, created_at, tx_id);
"""

DOWNGRADE = """
DROP INDEX tx_summary_listed;
DROP INDEX tx_summary_in_flight;
DROP TABLE owner_limit;
DROP TABLE api_key;
"""


def upgrade() -> None:
    op.execute(UPGRADE)


def downgrade() -> None:
    op.execute(DOWNGRADE)
