"""Vectors of four: one fails, one breaks whatever it is called with, two go on.

Each effect is a line in a table without a unique key, so that whatever is applied twice is seen.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from sqlalchemy import Connection, Engine, text

from datp_tasks import Batch, Fail, Item, Pipeline, StepContext
from datp_tasks.model.status import Status
from datp_tasks.record.record_types import Summary
from datp_tasks.testing import Kit

Data = dict[str, Any]

CREATE = "CREATE TABLE IF NOT EXISTS chaos_line (tx_id text NOT NULL, line text NOT NULL)"
LINES = "SELECT line FROM chaos_line WHERE tx_id = :tx_id"
WRITE = "INSERT INTO chaos_line VALUES (:tx_id, :line)"

#: What becomes of a transaction, by its number: four in a row are one vector.
FATES = ("good", "fails", "good", "breaks")


class VectorWorld:
    def __init__(self, kit: Kit) -> None:
        self._engine: Engine = kit.connections.engine
        #: What an outside partner was told, by idempotency key.
        self.sent: Counter[str] = Counter()
        with self._engine.begin() as sql:
            sql.execute(text(CREATE))
        self._declare_vectors(kit)
        self._declare_shared(kit)
        self._declare_once(kit)

    def data(self, number: int) -> Mapping[str, Any]:
        """`number` counts from 1, so each vector has each fate where it belongs."""
        return {"fate": FATES[(number - 1) % len(FATES)]}

    def _declare_vectors(self, kit: Kit) -> None:
        @kit.step("v/book", vector=True, transactional=True)
        def book(batch: Batch) -> None:
            write(batch.sql, ((item.tx_id, "book") for item in batch if is_let_through(item)))
            for item in batch:
                item.done() if is_let_through(item) else item.fail("it fails")
            if len(batch) > 1 and any(item.data["fate"] == "breaks" for item in batch):
                raise RuntimeError("not together with others")

        @book.rollback
        def unbook(batch: Batch) -> None:
            write(batch.sql, ((item.tx_id, "unbook") for item in batch))
            for item in batch:
                item.done()

        self._declare_outside(kit)
        kit.use(Pipeline("vectors").step("v/book").step("v/send").step("v/end").build())

    def _declare_outside(self, kit: Kit) -> None:
        @kit.step("v/send", vector=True)
        def send(batch: Batch) -> None:
            for item in batch:
                self.sent[item.idempotency_key] += 1
                item.done()

        @send.rollback(partial=True)
        def unsend(batch: Batch) -> None:
            for item in batch:
                self.sent[item.idempotency_key] += 1
                item.done()

        @kit.step("v/end", vector=True, transactional=True)
        def end(batch: Batch) -> None:
            for item in batch:
                if item.data["fate"] == "breaks":
                    item.fail("it breaks in the end")
                else:
                    item.done()

    def _declare_shared(self, kit: Kit) -> None:
        @kit.step("v/pay", transactional=True)
        def pay(ctx: StepContext, data: Data) -> None:
            write(ctx.sql, [(ctx.tx_id, "book")])
            if data["fate"] == "fails":
                raise Fail("it fails")

        @pay.rollback
        def unpay(ctx: StepContext, data: Data, output: Data) -> None:
            write(ctx.sql, [(ctx.tx_id, "unbook")])

        @kit.step("v/close", transactional=True)
        def close(ctx: StepContext, data: Data) -> None:
            if data["fate"] == "breaks":
                raise Fail("it breaks in the end")

        kit.use(Pipeline("shared").step("v/pay").step("v/close").build())

    def _declare_once(self, kit: Kit) -> None:
        @kit.step("v/once", vector=True, transactional=True)
        def once(batch: Batch) -> None:
            """Books for the first worker only: one that takes over has another answer."""
            first = [item for item in batch if item.attempt == 1]
            write(batch.sql, ((item.tx_id, "book") for item in first))
            for item in batch:
                item.done() if item.attempt == 1 else item.fail("too late")

        kit.use(Pipeline("once").step("v/once").build())

    def lines(self, tx_id: str) -> list[str]:
        with self._engine.connect() as sql:
            return sorted(sql.execute(text(LINES), {"tx_id": tx_id}).scalars())

    def complaints_about(self, summary: Summary) -> Iterator[str]:
        """The end must be the one of its fate, and the lines must be those of the end."""
        fate = summary.input["fate"]
        is_good = summary.status is Status.SUCCESS
        if summary.pipeline != "once" and is_good != (fate == "good"):
            yield f"{summary.tx_id} ({fate}) is {summary.status}"
        was_undone = summary.pipeline != "once" and fate == "breaks"
        wanted = ["book"] if is_good else ["book", "unbook"] if was_undone else []
        if self.lines(summary.tx_id) != wanted:
            yield f"{summary.tx_id} is {summary.status}, but has {self.lines(summary.tx_id)}"
        if summary.pipeline == "vectors" and is_good and not self.sent[f"{summary.tx_id}:1"]:
            yield f"{summary.tx_id} was never sent"


def is_let_through(item: Item) -> bool:
    return bool(item.data["fate"] != "fails")


def write(sql: Connection, rows: Iterable[tuple[str, str]]) -> None:
    values = [{"tx_id": tx_id, "line": line} for tx_id, line in rows]
    if values:
        sql.execute(text(WRITE), values)
