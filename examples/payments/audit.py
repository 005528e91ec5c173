"""Is all the money there? Questions for the demo, the tests and the night before a release."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from sqlalchemy import Connection, ScalarSelect, func, select

from .tables import account, ledger_entry, reservation


def problems(connection: Connection, *, prefix: str = "") -> list[str]:
    """What is wrong with the books of the accounts whose ids start with the prefix.

    Ask when nothing is on its way. The accounts must be a closed circle: nothing was moved to or
    from an account outside the prefix.
    """
    return [
        *_unbalanced(connection, prefix),
        *_not_the_sum_of_entries(connection, prefix),
        *_wrongly_held(connection, prefix),
        *_below_zero(connection, prefix),
    ]


def balances(connection: Connection, *, prefix: str = "") -> Mapping[str, int]:
    """What each account has, as the entries say."""
    rows = connection.execute(
        select(account.c.id, func.coalesce(func.sum(ledger_entry.c.amount), 0))
        .join_from(account, ledger_entry, isouter=True)
        .where(account.c.id.startswith(prefix, autoescape=True))
        .group_by(account.c.id)
    )
    return {name: int(total) for name, total in rows}


def _unbalanced(connection: Connection, prefix: str) -> Iterator[str]:
    rows = connection.execute(
        select(account.c.currency, func.sum(ledger_entry.c.amount).label("total"))
        .join_from(ledger_entry, account)
        .where(account.c.id.startswith(prefix, autoescape=True))
        .group_by(account.c.currency)
    )
    for currency, total in rows:
        if total != 0:
            yield f"the entries in {currency} add up to {total}, not to 0"


def _not_the_sum_of_entries(connection: Connection, prefix: str) -> Iterator[str]:
    folded = balances(connection, prefix=prefix)
    rows = connection.execute(
        select(account.c.id, account.c.balance).where(
            account.c.id.startswith(prefix, autoescape=True)
        )
    )
    for name, kept in rows:
        if kept != folded.get(name, 0):
            yield f"{name} says {kept}, but its entries add up to {folded.get(name, 0)}"


def _wrongly_held(connection: Connection, prefix: str) -> Iterator[str]:
    held = connection.execute(
        select(reservation.c.tx_id, reservation.c.amount)
        .where(reservation.c.state == "held")
        .where(reservation.c.account.startswith(prefix, autoescape=True))
    )
    for tx_id, amount in held:
        yield f"{tx_id} still holds {amount}"
    rows = connection.execute(
        select(account.c.id, account.c.held)
        .where(account.c.id.startswith(prefix, autoescape=True))
        .where(account.c.held != _held_by_reservations())
    )
    for name, amount in rows:
        yield f"{name} says {amount} is held, but its reservations say otherwise"


def _held_by_reservations() -> ScalarSelect[int]:
    return (
        select(func.coalesce(func.sum(reservation.c.amount), 0))
        .where(reservation.c.account == account.c.id, reservation.c.state == "held")
        .scalar_subquery()
    )


def _below_zero(connection: Connection, prefix: str) -> Iterator[str]:
    rows = connection.execute(
        select(account.c.id)
        .where(account.c.id.startswith(prefix, autoescape=True))
        .where(~account.c.is_house, account.c.balance - account.c.held < 0)
    )
    for (name,) in rows:
        yield f"{name} is below zero"
