"""Transfers set by set, by hand: what PostgreSQL can do when no engine stands before it.

Each function does a whole batch with two statements: one locks the accounts in the order of their
ids, so that no two batches wait for each other in a circle, and one does all the rest.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from sqlalchemy import Connection, text

LOCK = text("""
SELECT id FROM payments.account WHERE id = ANY(:ids) ORDER BY id FOR NO KEY UPDATE
""")

#: Only what is covered is held, with what earlier ones of the same batch hold taken off before.
RESERVE = text("""
WITH wanted AS (
    SELECT * FROM unnest(
        CAST(:tx_ids AS text[]), CAST(:sources AS text[]), CAST(:targets AS text[]),
        CAST(:amounts AS bigint[]), CAST(:currencies AS text[])
    ) WITH ORDINALITY AS given (tx_id, source, target, amount, currency, place)
), checked AS (
    SELECT wanted.tx_id, wanted.source, wanted.amount, payer.is_house OR
        sum(wanted.amount) OVER (PARTITION BY wanted.source ORDER BY wanted.place)
            <= payer.balance - payer.held AS covered
    FROM wanted
    JOIN payments.account payer ON (payer.id, payer.currency) = (source, wanted.currency)
    JOIN payments.account payee ON (payee.id, payee.currency) = (target, wanted.currency)
), held AS (
    INSERT INTO payments.reservation (tx_id, account, amount)
    SELECT tx_id, source, amount FROM checked WHERE covered
    RETURNING tx_id, account, amount
), changed AS (
    UPDATE payments.account SET held = account.held + more.amount
    FROM (SELECT account, sum(amount)::bigint AS amount FROM held GROUP BY account) more
    WHERE id = more.account
)
SELECT tx_id FROM held
""")

COMMIT = text("""
WITH wanted AS (
    SELECT * FROM unnest(CAST(:tx_ids AS text[]), CAST(:targets AS text[])) AS given (tx_id, target)
), ended AS (
    UPDATE payments.reservation SET state = 'committed', ended_at = now()
    FROM wanted WHERE reservation.tx_id = wanted.tx_id AND state = 'held'
    RETURNING reservation.tx_id, account AS source, target, amount
), lines AS (
    SELECT tx_id, source AS account, -amount AS amount, amount AS held FROM ended
    UNION ALL SELECT tx_id, target, amount, 0 FROM ended
), booked AS (
    INSERT INTO payments.ledger_entry (tx_id, account, amount, kind)
    SELECT tx_id, account, amount, 'transfer' FROM lines
), changed AS (
    UPDATE payments.account
    SET balance = account.balance + more.amount, held = account.held - more.held
    FROM (
        SELECT account, sum(amount)::bigint AS amount, sum(held)::bigint AS held
        FROM lines GROUP BY account
    ) more
    WHERE id = more.account
)
SELECT tx_id FROM ended
""")

Batch = Sequence[tuple[str, Mapping[str, Any]]]


def reserve(connection: Connection, batch: Batch) -> list[str]:
    """The ids of those for which the money is held now."""
    _lock(connection, batch)
    given = {
        "tx_ids": [tx_id for tx_id, _ in batch],
        "sources": [data["from"] for _, data in batch],
        "targets": [data["to"] for _, data in batch],
        "amounts": [data["amount"] for _, data in batch],
        "currencies": [data["currency"] for _, data in batch],
    }
    return list(connection.execute(RESERVE, given).scalars())


def commit(connection: Connection, batch: Batch) -> list[str]:
    """The ids of those whose money was moved."""
    _lock(connection, batch)
    given = {
        "tx_ids": [tx_id for tx_id, _ in batch],
        "targets": [data["to"] for _, data in batch],
    }
    return list(connection.execute(COMMIT, given).scalars())


def _lock(connection: Connection, batch: Batch) -> None:
    ids = {data[end] for _, data in batch for end in ("from", "to")}
    connection.execute(LOCK, {"ids": sorted(ids)})
