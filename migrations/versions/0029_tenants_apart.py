"""Cursors and ids of the feed tell nothing of other owners; requests for approval are hashed as a
whole, and those about a transaction are found by index."""

from __future__ import annotations

from alembic import op

revision = "0029"
down_revision = "0028"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.execute(
        "CREATE TABLE feed_key (id integer PRIMARY KEY, key text NOT NULL, old_xact xid8 NOT NULL, "
        "old_change bigint NOT NULL, old_report bigint NOT NULL, old_until timestamptz NOT NULL, "
        "CONSTRAINT feed_key_one CHECK (id = 1))"
    )
    # Processes of the release before hand out cursors that can be read until they are replaced;
    # where nothing was accepted yet, there are none.
    op.execute(
        """
        INSERT INTO feed_key
        SELECT 1, encode(sha256(convert_to(gen_random_uuid()::text || gen_random_uuid()
                                           || gen_random_uuid(), 'UTF8')), 'hex'),
               pg_current_xact_id(), coalesce(c.last, 0),
               CASE WHEN r.is_called THEN r.last_value ELSE 0 END,
               now() + CASE WHEN c.last IS NULL THEN interval '0' ELSE interval '1 day' END
        FROM (SELECT max(id) AS last FROM tx_state_change) AS c, tx_event_id AS r
        """
    )
    op.execute("ALTER TABLE approval ADD COLUMN asked_hash text")
    op.execute("CREATE INDEX approval_item_tx ON approval_item (tx_id)")


def downgrade() -> None:
    op.execute("DROP INDEX approval_item_tx")
    op.execute("ALTER TABLE approval DROP COLUMN asked_hash")
    op.execute("DROP TABLE feed_key")
