"""Celery's side of transfers: a chain of validate, reserve and commit on the example's books.

The app is that of `chain_app`, set up the way that was fastest for Celery; each of the last two
tasks commits in PostgreSQL. A chain that is lost is lost, and a task that runs twice is seen only
by the ledger.
"""

from __future__ import annotations

import os
from typing import Any

from celery import chain
from sqlalchemy import Engine, create_engine

from benchmarks import books, chain_app
from benchmarks.celery_chain import Chain
from benchmarks.chain_app import app

DATABASE = "BENCH_DATABASE_URL"

_engine: Engine | None = None


def _connected() -> Engine:
    global _engine
    if _engine is None:
        # After the fork: each worker process has connections of its own.
        _engine = create_engine(os.environ[DATABASE])
    return _engine


@app.task(name="bench.validate")  # type: ignore[untyped-decorator]
def validate(tx_id: str, data: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    books.validate(data)
    return tx_id, data


@app.task(name="bench.reserve")  # type: ignore[untyped-decorator]
def reserve(before: tuple[str, dict[str, Any]]) -> tuple[str, dict[str, Any]]:
    tx_id, data = before
    with _connected().begin() as connection:
        books.reserve(connection, tx_id, data)
    return tx_id, {**data, "reserved": True}


@app.task(name="bench.commit")  # type: ignore[untyped-decorator]
def commit(before: tuple[str, dict[str, Any]]) -> None:
    tx_id, data = before
    with _connected().begin() as connection:
        books.commit(connection, tx_id, data)
    chain_app.tell_done()


class TransferChain(Chain):
    app = "benchmarks.transfer_chain"

    def environment(self) -> dict[str, str]:
        return {**super().environment(), DATABASE: self._stack.database_url}

    def warm_up(self) -> None:
        """The transfers themselves do."""

    def transfer(self, mark: str, wanted: list[books.Data]) -> float:
        """Transfers a second, until the last task of each chain has run."""
        return self.run(
            chain(validate.s(f"{mark}-{number}", data), reserve.s(), commit.s())
            for number, data in enumerate(wanted)
        )
