"""SQL has a newer fence than Redis: the worker hands the transaction back, and it still ends."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from datp_tasks import Batch, Pipeline, failpoints
from datp_tasks.model.outcome import DontKnow
from datp_tasks.model.status import Status
from datp_tasks.testing import Kit
from tests.support.books import Books

Data = dict[str, Any]


def fields(kit: Kit, tx_id: str) -> dict[str, str]:
    return dict(kit.connections.live.fields_many([tx_id])[0])


def put_sql_ahead(kit: Kit, tx_ids: list[str]) -> Callable[[], None]:
    """As if what Redis was restored from had been read after these were claimed."""

    def act() -> None:
        for tx_id in tx_ids:
            fence = int(fields(kit, tx_id)["fence"])
            kit.connections.record.raise_fences([(tx_id, fence + 5)])

    return act


def declare(kit: Kit, books: Books) -> None:
    @kit.step("t/book", transactional=True)
    def book(ctx: Any, data: Data) -> Data:
        books.write(ctx.sql, ctx.tx_id, "book")
        return data

    @kit.step("t/book-all", transactional=True, vector=True)
    def book_all(batch: Batch) -> None:
        for item in batch:
            books.write(batch.sql, item.tx_id, "book")
            item.done(item.data)

    @kit.step("t/report")
    def report(ctx: Any, data: Data) -> Data:
        ctx.progress({"stage": "half"})
        return data

    kit.use(*(Pipeline(name).step(f"t/{name}").build() for name in ("book", "book-all", "report")))


def queued_together(kit: Kit, pipeline: str, count: int) -> list[str]:
    kit.lose_bells()
    tx_ids = [kit.submit(pipeline, {}) for _ in range(count)]
    kit.lose_bells(False)
    return tx_ids


@pytest.mark.parametrize("pipeline", ["book", "book-all", "report"])
@pytest.mark.parametrize("count", [1, 3])
def test_a_worker_that_sql_refuses_hands_back_and_all_end_once(
    datp: Kit, books: Books, pipeline: str, count: int
) -> None:
    declare(datp, books)
    tx_ids = queued_together(datp, pipeline, count)
    failpoints.arm("hop.after_claim", put_sql_ahead(datp, tx_ids[-1:]))
    datp.ring_together(tx_ids)
    assert fields(datp, tx_ids[-1])["status"] != "running"
    datp.advance(seconds=60)
    assert {datp.finish(tx_id).status for tx_id in tx_ids} == {Status.SUCCESS}
    assert books.lines() == ["book"] * (0 if pipeline == "report" else count)


def test_a_step_in_doubt_whose_parking_sql_refuses_is_not_run(datp: Kit) -> None:
    calls: list[str] = []

    @datp.step("t/first")
    def first(ctx: Any, data: Data) -> Data:
        return data

    @datp.step("t/wire", on_crash="probe")
    def wire(ctx: Any, data: Data) -> Data:
        calls.append(ctx.idempotency_key)
        return data

    @wire.probe
    def look(ctx: Any, data: Data) -> DontKnow:
        return DontKnow("the bank does not answer")

    datp.use(Pipeline("wire").step("t/first").step("t/wire").build())
    (tx_id,) = queued_together(datp, "wire", 1)
    # An earlier try began the step, and Redis has lost that.
    with datp.connections.engine.begin() as sql:
        sql.exec_driver_sql(
            "INSERT INTO step_begun (tx_id, step_key, fence) VALUES (%(tx)s, %(key)s, 1)",
            {"tx": tx_id, "key": f"{tx_id}:1#0.0"},
        )
    failpoints.arm("hop.after_begun", put_sql_ahead(datp, [tx_id]))
    datp.ring_together([tx_id])
    assert fields(datp, tx_id)["stepType"] == "t/wire"
    for _ in range(3):
        datp.advance(seconds=60)
        datp.run_jobs()
    assert datp.status(tx_id).status is Status.IN_DOUBT
    assert calls == []


@pytest.mark.parametrize("node_is_gone", [True, False])
def test_a_claim_that_sql_is_ahead_of_is_taken_from_its_node(
    datp: Kit, books: Books, node_is_gone: bool
) -> None:
    """Its worker stopped in the middle, after SQL was raised above its fence."""
    declare(datp, books)
    (tx_id,) = queued_together(datp, "book", 1)
    worker = datp.process.worker
    datp.crash_at("hop.after_claim")
    datp.ring_together([tx_id])
    put_sql_ahead(datp, [tx_id])()
    assert fields(datp, tx_id)["status"] == "running"
    if node_is_gone:
        datp.recover()
    else:
        taken = datp.connections.recovery.take_over.from_node(worker.node, [tx_id])
        assert taken.queued == 1
    assert datp.finish(tx_id).status is Status.SUCCESS
    assert books.lines() == ["book"]
