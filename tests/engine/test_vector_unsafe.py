"""Vector steps that are not safe to run again, and what neighbours do to each other."""

from __future__ import annotations

import threading
from datetime import timedelta
from typing import Any

import pytest
from redis.exceptions import ConnectionError as RedisConnectionError

from datp_tasks import Batch, Pipeline
from datp_tasks.engine.reporter import Reporter
from datp_tasks.model.outcome import NotDone
from datp_tasks.model.status import Status
from datp_tasks.testing import Kit
from tests.support.books import Books

Data = dict[str, Any]


@pytest.mark.parametrize("trouble", ["raises", "forgets", "hangs"])
def test_the_outside_is_not_called_again_at_once_after_a_call_that_broke(
    datp: Kit, trouble: str
) -> None:
    calls: list[int] = []

    @datp.step("t/pay", vector=True, on_crash="review", timeout_s=0.2, retry={"max_attempts": 1})
    def pay(batch: Batch) -> None:
        calls.append(len(batch))
        match trouble:
            case "raises":
                raise ConnectionError("no answer")
            case "hangs":
                threading.Event().wait(20)
            case "forgets":
                for item in list(batch)[1:]:
                    item.done({})

    datp.use(Pipeline("pay").step("t/pay").build())
    found = datp.run_together("pay", [{}] * 4)
    assert calls == [4]
    broken = 1 if trouble == "forgets" else 4
    statuses = [summary.status for summary in found]
    assert statuses.count(Status.INTERNAL_ERROR) == broken
    assert statuses.count(Status.SUCCESS) == 4 - broken


def test_an_effect_counts_although_its_report_could_not_be_made(
    datp: Kit, books: Books, monkeypatch: pytest.MonkeyPatch
) -> None:
    @datp.step("t/book", transactional=True, vector=True, retry={"max_attempts": 1})
    def book(batch: Batch) -> None:
        for item in batch:
            item.progress({"stage": "booked"})
            books.write(batch.sql, item.tx_id, "book")
            item.done({})

    datp.use(Pipeline("book", on_error="rollback").step("t/book").build())
    report_held, reports = Reporter.report_held, 0

    def cut(self: Reporter, run: Any) -> None:
        nonlocal reports
        reports += 1
        if reports == 1:
            raise RedisConnectionError("Connection reset by peer")
        report_held(self, run)

    monkeypatch.setattr(Reporter, "report_held", cut)
    tx_id = datp.submit("book", {})
    datp.recover()
    assert datp.finish(tx_id).status is Status.SUCCESS
    assert books.lines(tx_id) == ["book"]


def test_after_a_probe_the_step_runs_under_the_mark_of_its_own_claim(datp: Kit) -> None:
    seen: list[tuple[str, str]] = []

    @datp.step("t/wire", on_crash="probe", timeout_s=60)
    def wire(ctx: Any, data: Data) -> Data:
        (fields,) = datp.connections.live.fields_many([ctx.tx_id])
        seen.append((fields["fence"], fields.get("unsafe", "")))
        return data

    @wire.probe
    def look(ctx: Any, data: Data) -> NotDone:
        return NotDone()

    datp.use(Pipeline("wire").step("t/wire").build())
    datp.crash_at("hop.after_begun")
    tx_id = datp.submit("wire", {})
    for _ in range(4):
        datp.advance(seconds=40)
        datp.recover()
    assert datp.status(tx_id).status is Status.SUCCESS
    assert [unsafe.partition(":")[0] for _, unsafe in seen] == [fence for fence, _ in seen]
    assert len(seen) == 1


def test_one_that_expires_soon_does_not_shorten_the_time_of_its_neighbours(datp: Kit) -> None:
    calls: list[int] = []

    @datp.step("t/bulk", vector=True)
    def bulk(batch: Batch) -> None:
        calls.append(len(batch))
        threading.Event().wait(0.3)
        for item in batch:
            item.done({})

    datp.use(Pipeline("bulk").step("t/bulk").build())
    datp.lose_bells()
    tx_ids = [datp.submit("bulk", {}) for _ in range(5)]
    soon = datp.connections.record.server_now() + timedelta(milliseconds=100)
    tx_ids.append(datp.submit("bulk", {}, expires_at=soon))
    datp.lose_bells(False)
    datp.ring_together(tx_ids)
    assert sorted(calls) == [1, 5]
    assert {datp.status(tx_id).status for tx_id in tx_ids[:5]} == {Status.SUCCESS}


def test_one_that_cannot_be_read_does_not_stop_its_neighbours(datp: Kit) -> None:
    @datp.step("t/pass")
    def go_on(ctx: Any, data: Data) -> Data:
        return data

    datp.use(Pipeline("pass").step("t/pass").build())
    datp.lose_bells()
    tx_ids = [datp.submit("pass", {}) for _ in range(3)]
    datp.lose_bells(False)
    live = datp.connections.live
    key = live.keys.state(tx_ids[1])
    json = live.redis.hget(key, "state")
    live.redis.hset(key, "state", '{"of":"a later release"}')
    datp.ring_together(tx_ids)
    statuses = [datp.status(tx_id).status for tx_id in tx_ids]
    assert statuses[::2] == [Status.SUCCESS, Status.SUCCESS]
    assert statuses[1] not in (Status.SUCCESS, Status.INTERNAL_ERROR)
    live.redis.hset(key, "state", json)
    # As the guard would free it, after two looks.
    datp.process.heartbeat.retire(datp.process.worker.node)
    datp.advance(seconds=60)
    datp.recover()
    assert datp.finish(tx_ids[1]).status is Status.SUCCESS
