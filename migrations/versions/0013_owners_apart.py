"""Owners apart: breakers of webhooks for each, and what each has pending and in a ledger's line.

What releases before this one had disabled for all owners is disabled for each of those that have
something pending there; its alerts are named anew. The secret that signs alerts gets a name that
no owner can have, unless an owner of the old name has keys: then that owner keeps it, and the
operator gets a new one.
"""

from __future__ import annotations

from alembic import op

revision = "0013"
down_revision = "0012"
branch_labels = None
depends_on = None

UPGRADE = """
CREATE TABLE webhook_breaker (
    owner text NOT NULL,
    target text NOT NULL,
    disabled_at timestamptz NOT NULL,
    disabled_until timestamptz NOT NULL,
    reason text NOT NULL,
    PRIMARY KEY (owner, target)
);
CREATE INDEX webhook_delivery_owner_due ON webhook_delivery (owner, next_at)
WHERE state = 'pending';
CREATE INDEX ledger_batch_owner ON ledger_batch (service_id, owner) WHERE final_at IS NULL;

INSERT INTO webhook_breaker (owner, target, disabled_at, disabled_until, reason)
SELECT DISTINCT d.owner, t.target, t.disabled_at, t.disabled_until, t.reason
FROM webhook_target t JOIN webhook_delivery d ON d.target = t.target AND d.state = 'pending';
UPDATE alert SET cleared_at = now()
WHERE kind = 'webhook-target-disabled' AND cleared_at IS NULL;
INSERT INTO alert (kind, subject, summary, created_at)
SELECT 'webhook-target-disabled', owner || ' ' || target, reason, disabled_at FROM webhook_breaker;
UPDATE alert a SET subject = d.owner || ' ' || d.target
FROM (SELECT DISTINCT ON (target) owner, target FROM webhook_delivery WHERE state = 'dead') AS d
WHERE a.kind = 'webhook-dead' AND a.cleared_at IS NULL AND a.subject = d.target;

UPDATE webhook_secret SET owner = '\\:operator'
WHERE owner = 'operator' AND NOT EXISTS (SELECT 1 FROM api_key WHERE owner = 'operator');
"""

DOWNGRADE = """
UPDATE webhook_secret SET owner = 'operator'
WHERE owner = '\\:operator' AND NOT EXISTS (SELECT 1 FROM webhook_secret WHERE owner = 'operator');
DROP INDEX ledger_batch_owner;
DROP INDEX webhook_delivery_owner_due;
DROP TABLE webhook_breaker;
"""


def upgrade() -> None:
    op.execute(UPGRADE)


def downgrade() -> None:
    op.execute(DOWNGRADE)
