"""Settling transfers in an outside ledger: each entry goes into one settlement, once.

Every function works inside the transaction of the connection it is given.
"""

from __future__ import annotations

from collections.abc import Mapping

from sqlalchemy import Connection, delete, func, literal, select, update
from sqlalchemy.dialects.postgresql import insert

from .tables import account, ledger_entry, settled_entry

ENTRIES_MAX = 10_000


def collect(
    connection: Connection, tx_id: str, currency: str, prefix: str = ""
) -> Mapping[str, int]:
    """Take the entries that are in no settlement yet; what each account owes or is owed by them.

    Two settlements at the same time share the entries: the one that comes second waits for the
    first and skips what that took.
    """
    open_entries = (
        select(ledger_entry.c.id, literal(tx_id))
        .join(account)
        .outerjoin(settled_entry)
        .where(
            account.c.currency == currency,
            account.c.id.startswith(prefix, autoescape=True),
            ledger_entry.c.kind.in_(("transfer", "reversal")),
            settled_entry.c.entry_id.is_(None),
        )
        .order_by(ledger_entry.c.id)
        .limit(ENTRIES_MAX)
    )
    connection.execute(
        insert(settled_entry)
        .from_select(["entry_id", "tx_id"], open_entries)
        .on_conflict_do_nothing()
    )
    rows = connection.execute(
        select(ledger_entry.c.account, func.sum(ledger_entry.c.amount))
        .join(settled_entry)
        .where(settled_entry.c.tx_id == tx_id)
        .group_by(ledger_entry.c.account)
        .order_by(ledger_entry.c.account)
    )
    return {name: int(total) for name, total in rows}


def give_back(connection: Connection, tx_id: str) -> int:
    """The settlement did not happen: its entries wait for the next one."""
    ours = settled_entry.c.tx_id == tx_id
    done = connection.execute(delete(settled_entry).where(ours, settled_entry.c.batch.is_(None)))
    return done.rowcount


def mark_settled(connection: Connection, tx_id: str, batch: str) -> int:
    """Note the batch that is committed in the ledger; how many entries were settled by it."""
    ours = settled_entry.c.tx_id == tx_id
    return connection.execute(update(settled_entry).where(ours).values(batch=batch)).rowcount
