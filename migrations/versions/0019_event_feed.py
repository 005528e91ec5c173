"""The event feed: rows that are events have their owner and a place in the order of commits.

Rows of before have no owner, so the feed begins here. Processes of the release before write rows
without either until they are replaced: a trigger puts them in.
"""

from __future__ import annotations

from alembic import op

revision = "0019"
down_revision = "0018"
branch_labels = None
depends_on = None

UPGRADE = """
ALTER TABLE tx_state_change ADD COLUMN owner text;
CREATE INDEX tx_state_change_feed ON tx_state_change (xact, id) WHERE owner IS NOT NULL;
CREATE INDEX tx_state_change_owner_feed ON tx_state_change (owner, xact, id)
WHERE owner IS NOT NULL;

CREATE SEQUENCE tx_event_id;
ALTER TABLE tx_event
    ADD COLUMN owner text,
    ADD COLUMN xact xid8,
    ADD COLUMN id bigint;
ALTER TABLE tx_event ALTER COLUMN xact SET DEFAULT pg_current_xact_id();
CREATE INDEX tx_event_feed ON tx_event (xact, id) WHERE owner IS NOT NULL;
CREATE INDEX tx_event_owner_feed ON tx_event (owner, xact, id) WHERE owner IS NOT NULL;

CREATE FUNCTION datp_owner_of_event() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    SELECT owner INTO NEW.owner FROM tx_summary WHERE tx_id = NEW.tx_id;
    IF TG_TABLE_NAME = 'tx_event' THEN
        NEW.id := nextval('tx_event_id');
    END IF;
    RETURN NEW;
END $$;
CREATE TRIGGER tx_state_change_owner BEFORE INSERT ON tx_state_change FOR EACH ROW
WHEN (NEW.owner IS NULL AND (NEW.detail IS NULL OR starts_with(NEW.detail, 'EXPIRED_')))
EXECUTE FUNCTION datp_owner_of_event();
CREATE TRIGGER tx_event_owner BEFORE INSERT ON tx_event FOR EACH ROW
WHEN (NEW.owner IS NULL) EXECUTE FUNCTION datp_owner_of_event();
"""

DOWNGRADE = """
DROP TRIGGER tx_event_owner ON tx_event;
DROP TRIGGER tx_state_change_owner ON tx_state_change;
DROP FUNCTION datp_owner_of_event();
ALTER TABLE tx_event DROP COLUMN id, DROP COLUMN xact, DROP COLUMN owner;
ALTER TABLE tx_state_change DROP COLUMN owner;
DROP SEQUENCE tx_event_id;
"""


def upgrade() -> None:
    op.execute(UPGRADE)


def downgrade() -> None:
    op.execute(DOWNGRADE)
