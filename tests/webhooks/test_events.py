"""Events carry one sequence without a gap, whoever reports and whatever is away."""

from __future__ import annotations

import threading
from typing import Any

import pytest
from sqlalchemy.exc import OperationalError

from datp_tasks import Pipeline
from datp_tasks.model.status import Status
from datp_tasks.record.events import Event, EventStore
from datp_tasks.testing import Kit

Data = dict[str, Any]


def events(kit: Kit, tx_id: str) -> list[tuple[int, str, Any]]:
    found = EventStore(kit.connections.engine, kit.clock).list(tx_id)
    assert all(isinstance(each, Event) for each in found)
    return [(each.sequence, each.kind, each.payload) for each in found]


def test_reports_and_the_end_are_numbered_from_one(kit: Kit) -> None:
    summary = kit.run("pay", {"reports": 2, "amount": 3})
    assert events(kit, summary.tx_id) == [
        (1, "progress", {"done": 0}),
        (2, "progress", {"done": 1}),
        (3, "final", {"status": "success", "output": {"paid": 3}, "note": None}),
    ]
    assert kit.status(summary.tx_id).sequence == 3
    listed = EventStore(kit.connections.engine, kit.clock).list(summary.tx_id, after=1, rows_max=1)
    assert [each.sequence for each in listed] == [2]


def test_one_that_goes_on_has_no_last_event_yet(kit: Kit) -> None:
    tx_id = kit.submit("wait", {})
    assert events(kit, tx_id) == []
    assert kit.status(tx_id).sequence == 0


def test_many_that_report_at_once_get_numbers_without_a_gap(kit: Kit) -> None:
    kit.lose_bells()
    tx_id = kit.submit("pay", {})
    record = kit.connections.record
    numbers: list[int | None] = []

    def report(who: int) -> None:
        for number in range(10):
            numbers.append(record.report_progress(tx_id, 5, f'{{"n":{who * 10 + number}}}'))

    threads = [threading.Thread(target=report, args=(who,)) for who in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(number or 0 for number in numbers) == list(range(1, 41))
    assert [number for number, _, _ in events(kit, tx_id)] == list(range(1, 41))


def test_a_worker_that_lost_its_transaction_reports_nothing(kit: Kit) -> None:
    kit.lose_bells()
    tx_id = kit.submit("pay", {})
    record = kit.connections.record
    assert record.report_progress(tx_id, 7, '{"by":"new"}') == 1
    assert record.report_progress(tx_id, 6, '{"by":"old"}') is None
    record.raise_fences([(tx_id, 9)])
    assert record.report_progress(tx_id, 9, '{"by":"taken over"}') is None
    assert record.report_progress(tx_id, 10, '{"by":"new"}') == 2
    assert [payload for _, _, payload in events(kit, tx_id)] == [{"by": "new"}] * 2


def test_a_report_after_a_takeover_makes_the_worker_drop_it(kit: Kit) -> None:
    dropped: list[str] = []

    @kit.step("ev/late")
    def late(ctx: Any, data: Data) -> Data:
        if not dropped:
            fence = int(kit.connections.live.fields_many([ctx.tx_id])[0]["fence"])
            kit.connections.record.raise_fences([(ctx.tx_id, fence)])
            dropped.append(ctx.tx_id)
            ctx.progress({"by": "the old one"})
        return {}

    kit.use(Pipeline("late").step("ev/late").build())
    tx_id = kit.submit("late", {})
    assert not kit.status(tx_id).is_final
    assert events(kit, tx_id) == []


def test_nothing_is_reported_after_the_end(kit: Kit) -> None:
    tx_id = kit.run("pay", {}).tx_id
    assert kit.connections.record.report_progress(tx_id, 2**60, "{}") is None
    assert [number for number, _, _ in events(kit, tx_id)] == [1]


def test_a_transactional_step_reports_at_once_and_is_numbered_after_its_commit(kit: Kit) -> None:
    seen: list[tuple[Any, int]] = []

    @kit.step("ev/books", transactional=True)
    def books(ctx: Any, data: Data) -> Data:
        ctx.progress({"stage": 1})
        ctx.progress({"stage": 2})
        seen.append((kit.status(ctx.tx_id).progress, kit.status(ctx.tx_id).sequence))
        return {}

    kit.use(Pipeline("books").step("ev/books").build())
    summary = kit.run("books", {})
    assert summary.status is Status.SUCCESS
    assert seen == [({"stage": 2}, 0)]
    assert [payload for _, kind, payload in events(kit, summary.tx_id) if kind == "progress"] == [
        {"stage": 1},
        {"stage": 2},
    ]
    assert kit.status(summary.tx_id).sequence == 3


def test_a_report_while_sql_is_unavailable_does_not_fail_the_step_and_leaves_no_gap(
    kit: Kit, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    record = kit.connections.record
    report, calls = record.report_progress, 0

    def fails_once(*arguments: Any) -> int | None:
        nonlocal calls
        calls += 1
        if calls == 2:
            raise OperationalError("report", {}, ConnectionError("SQL is away"))
        return report(*arguments)

    monkeypatch.setattr(record, "report_progress", fails_once)
    summary = kit.run("pay", {"reports": 3})
    assert summary.status is Status.SUCCESS
    assert [(number, payload) for number, _, payload in events(kit, summary.tx_id)][:2] == [
        (1, {"done": 0}),
        (2, {"done": 2}),
    ]
    assert kit.status(summary.tx_id).sequence == 3
    assert "a progress report is no event" in caplog.text


def test_marking_as_told_happens_once_and_cancels_only_what_was_told(kit: Kit) -> None:
    store = EventStore(kit.connections.engine, kit.clock)
    tx_id = kit.run(
        "pay", {"reports": 2}, webhook="https://example.com/", progress_reports=True
    ).tx_id
    assert store.mark_notified(tx_id, 2, cancel_webhook=False) == 0
    first = kit.status(tx_id).notified_at
    kit.clock.advance(seconds=5)
    assert store.mark_notified(tx_id, 2, cancel_webhook=True) == 2
    assert kit.status(tx_id).notified_at == first
    left = kit.connections.webhooks.store.deliveries(tx_id=tx_id, state="pending")
    assert [each.sequence for each in left] == [3]
