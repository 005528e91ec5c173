"""Grants and roles of keys; who submitted a transaction; who did what, in a chain of hashes."""

from __future__ import annotations

from alembic import op

revision = "0010"
down_revision = "0009"
branch_labels = None
depends_on = None

UPGRADE = """
ALTER TABLE api_key ADD COLUMN role text;
ALTER TABLE api_key ADD COLUMN grants json;
ALTER TABLE api_key ADD CONSTRAINT api_key_role
    CHECK (role IN ('viewer', 'operator', 'approver', 'admin'));
-- A key with the scope operator could do everything, so it is an admin's.
UPDATE api_key SET role = 'admin' WHERE scope = 'operator';

ALTER TABLE tx_summary ADD COLUMN submitted_by text;
ALTER TABLE tx_summary ADD COLUMN origin text;

ALTER TABLE operator_action ADD COLUMN key_id text;
ALTER TABLE operator_action ADD COLUMN request_id text;
ALTER TABLE operator_action ADD COLUMN address text;
CREATE INDEX operator_action_subject ON operator_action (subject, id);

CREATE TABLE audit_seal (
    position bigint PRIMARY KEY,
    action_id bigint NOT NULL,
    hash text NOT NULL,
    sealed_at timestamptz NOT NULL DEFAULT now()
);
CREATE UNIQUE INDEX audit_seal_action ON audit_seal (action_id);
"""

DOWNGRADE = """
DROP TABLE audit_seal;
DROP INDEX operator_action_subject;
ALTER TABLE operator_action DROP COLUMN address;
ALTER TABLE operator_action DROP COLUMN request_id;
ALTER TABLE operator_action DROP COLUMN key_id;
ALTER TABLE tx_summary DROP COLUMN origin;
ALTER TABLE tx_summary DROP COLUMN submitted_by;
ALTER TABLE api_key DROP CONSTRAINT api_key_role;
ALTER TABLE api_key DROP COLUMN grants;
ALTER TABLE api_key DROP COLUMN role;
"""


def upgrade() -> None:
    op.execute(UPGRADE)


def downgrade() -> None:
    op.execute(DOWNGRADE)
