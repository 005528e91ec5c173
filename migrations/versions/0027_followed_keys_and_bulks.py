"""Which API keys have followed to another pepper; bulk actions in the audit are found by index."""

from __future__ import annotations

from alembic import op

revision = "0027"
down_revision = "0026"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.execute("ALTER TABLE api_key ADD COLUMN followed_at timestamptz")
    # The release before noted nowhere which keys have followed: any of them may have.
    op.execute("UPDATE api_key SET followed_at = now()")
    op.execute(
        "CREATE INDEX operator_action_bulk ON operator_action (id) WHERE action IN "
        "('bulk-cancel', 'bulk-wake', 'bulk-retry', 'bulk-transfer.cancel')"
    )
    op.execute("CREATE INDEX api_key_followed ON api_key (id) WHERE followed_at IS NOT NULL")


def downgrade() -> None:
    op.execute("DROP INDEX api_key_followed")
    op.execute("DROP INDEX operator_action_bulk")
    op.execute("ALTER TABLE api_key DROP COLUMN followed_at")
