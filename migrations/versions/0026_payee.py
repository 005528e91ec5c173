"""The payee of a transaction: another owner, who is told of its end."""

from __future__ import annotations

from alembic import op

revision = "0026"
down_revision = "0025"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.execute("ALTER TABLE tx_summary ADD COLUMN payee json")
    _allow("'progress', 'payee'")


def downgrade() -> None:
    op.execute("DELETE FROM tx_event WHERE kind = 'payee'")
    _allow("'progress'")
    op.execute("ALTER TABLE tx_summary DROP COLUMN payee")


def _allow(kinds: str) -> None:
    """All upgrades are one transaction, so its lock keeps others out of the table while PostgreSQL
    reads it once. With a constraint that is not validated an upgraded database would differ from a
    new one."""
    op.execute("ALTER TABLE tx_event DROP CONSTRAINT tx_event_kind")
    op.execute(
        f"ALTER TABLE tx_event ADD CONSTRAINT tx_event_kind CHECK (kind IN ({kinds})) NOT VALID"
    )
    op.execute("ALTER TABLE tx_event VALIDATE CONSTRAINT tx_event_kind")
