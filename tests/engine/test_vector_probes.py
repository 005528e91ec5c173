"""Rollback functions and probes of vector steps are vectors too."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest

from datp_tasks import Batch, Fail, Item, Pipeline, failpoints
from datp_tasks.model.status import Status
from datp_tasks.testing import Kit

Data = dict[str, Any]


def numbers(count: int) -> list[Data]:
    return [{"n": n} for n in range(count)]


def statuses(kit: Kit, tx_ids: list[str]) -> list[Status]:
    return [kit.status(tx_id).status for tx_id in tx_ids]


@pytest.mark.parametrize("is_async", [False, True])
def test_a_rollback_is_a_vector_too_and_knows_outputs(datp: Kit, is_async: bool) -> None:
    undone: list[list[tuple[int, Any, int]]] = []

    @datp.step("t/seat", vector=True)
    def seat(batch: Batch) -> None:
        for item in batch:
            item.done({"seat": item.data["n"]})

    def give_back(batch: Batch) -> None:
        keys = [item.idempotency_key for item in batch]
        assert all(key.endswith(":undo") for key in keys)
        undone.append([(item.data["n"], item.output, item.attempt) for item in batch])
        for item in batch:
            if item.data["n"] == 2 and item.attempt == 1:
                item.retry("the line is dead")
            else:
                item.done()

    async def give_back_async(batch: Batch) -> None:
        assert threading.current_thread().name == "datp-event-loop"
        give_back(batch)

    seat.rollback(give_back_async if is_async else give_back)

    @datp.step("t/odd", vector=True)
    def odd(batch: Batch) -> None:
        for item in batch:
            item.fail("even") if item.data["seat"] % 2 == 0 else item.done()

    datp.use(Pipeline("p").step("t/seat").step("t/odd").build())
    ends = datp.run_together("p", numbers(5))
    assert [end.status is Status.FAILED for end in ends] == [True, False, True, False, True]
    assert undone == [
        [(0, {"seat": 0}, 1), (2, {"seat": 2}, 1), (4, {"seat": 4}, 1)],
        [(2, {"seat": 2}, 2)],
    ]


def test_a_rollback_that_never_works_parks_its_item_alone(datp: Kit) -> None:
    @datp.step("t/seat", vector=True, retry={"max_attempts": 2})
    def seat(batch: Batch) -> None:
        for item in batch:
            item.done()

    @seat.rollback
    def give_back(batch: Batch) -> None:
        for item in batch:
            if item.data["n"] == 1:
                raise OSError("no")
            item.done()

    @datp.step("t/fail")
    def fail(ctx: Any, data: Data) -> None:
        raise Fail("no")

    datp.use(Pipeline("p").step("t/seat").step("t/fail").build())
    ends = datp.run_together("p", numbers(3))
    assert [end.status for end in ends] == [Status.FAILED, Status.IN_DOUBT, Status.FAILED]


def send_with_probe(kit: Kit, sent: set[str], probed: list[int], **options: Any) -> None:
    """A partner that is told in bulk, and can be asked in bulk."""

    @kit.step("t/send", vector=True, on_crash="probe", **options)
    def send(batch: Batch) -> None:
        for item in batch:
            assert item.tx_id not in sent
            sent.add(item.tx_id)
            item.done({"sent": True})

    @send.probe
    def look(batch: Batch) -> None:
        probed.append(len(batch))
        for item in batch:
            item.done({"sent": "probed"}) if item.tx_id in sent else item.not_done()


def test_after_a_crash_a_probe_is_asked_and_nothing_is_sent_twice(datp: Kit) -> None:
    sent: set[str] = set()
    probed: list[int] = []
    send_with_probe(datp, sent, probed)
    datp.use(Pipeline("p").step("t/send").build())
    datp.crash_at("hop.after_step")
    tx_ids = datp.submit_together("p", numbers(3))
    assert sent == set(tx_ids)
    datp.recover()
    assert sum(probed) == 3
    assert [datp.status(tx_id).output for tx_id in tx_ids] == [{"sent": "probed"}] * 3


def test_a_probe_that_finds_nothing_lets_the_step_run(datp: Kit) -> None:
    sent: set[str] = set()
    probed: list[int] = []
    send_with_probe(datp, sent, probed)
    datp.use(Pipeline("p").step("t/send").build())
    datp.crash_at("hop.after_begun")
    tx_ids = datp.submit_together("p", numbers(3))
    assert sent == set()
    datp.recover()
    assert sum(probed) == 3
    assert [datp.status(tx_id).output for tx_id in tx_ids] == [{"sent": True}] * 3


def answer(item: Item) -> None:
    """A probe that has each kind of answer."""
    match item.data["n"]:
        case 0:
            item.done({"by": "probe"})
        case 1:
            item.not_done()
        case 2:
            item.dont_know("no line")
        case 3:
            item.retry("ask later")
        case 4:
            raise OSError("broken")


@pytest.mark.parametrize("is_async", [False, True])
def test_each_probed_item_gets_its_own_answer(datp: Kit, is_async: bool) -> None:
    calls: list[int] = []

    @datp.step("t/send", vector=True, on_crash="probe", retry={"max_attempts": 2, "first_s": 60})
    def send(batch: Batch) -> None:
        for item in batch:
            item.done({"by": "step"})

    def look(batch: Batch) -> None:
        calls.append(len(batch))
        for item in batch:
            answer(item)

    async def look_async(batch: Batch) -> None:
        look(batch)

    send.probe(look_async if is_async else look)
    datp.use(Pipeline("p").step("t/send").build())
    datp.crash_at("hop.after_step")
    tx_ids = datp.submit_together("p", numbers(5))
    # The reaper lets each run alone; here they come as one vector.
    datp.lose_bells()
    datp.recover()
    datp.lose_bells(False)
    datp.ring_together(tx_ids)
    ends = [datp.finish(tx_id) for tx_id in tx_ids]
    assert [end.output for end in ends[:2]] == [{"by": "probe"}, {"by": "step"}]
    assert [end.status for end in ends[2:]] == [Status.IN_DOUBT] * 3
    for word, end in zip(("no line", "ask later", "OSError (error "), ends[2:], strict=True):
        assert word in (end.note or "")
    assert calls[0] == 5


@pytest.mark.parametrize(
    ("misuse", "words"),
    [
        (lambda item: item.fail("no"), "Fail is no outcome of its probe function"),
        (lambda item: item.sleep(1), "Sleep is no outcome of its probe function"),
        (lambda item: [item.not_done(), item.done()], "two outcomes for"),
        (lambda item: None, "without giving it an outcome"),
    ],
)
def test_a_probe_that_is_no_probe_puts_only_its_own_item_in_doubt(
    datp: Kit, misuse: Callable[[Item], object], words: str
) -> None:
    sent: list[str] = []

    @datp.step("t/send", vector=True, on_crash="probe", retry={"max_attempts": 1})
    def send(batch: Batch) -> None:
        for item in batch:
            sent.append(item.tx_id)
            item.done()

    @send.probe
    def look(batch: Batch) -> None:
        for item in batch:
            misuse(item) if item.data["n"] == 1 else item.done({"by": "probe"})

    datp.use(Pipeline("p").step("t/send").build())
    datp.crash_at("hop.after_step")
    tx_ids = datp.submit_together("p", numbers(3))
    datp.lose_bells()
    datp.recover()
    datp.lose_bells(False)
    datp.ring_together(tx_ids)
    ends = [datp.status(tx_id) for tx_id in tx_ids]
    assert [end.status for end in ends] == [Status.SUCCESS, Status.IN_DOUBT, Status.SUCCESS]
    assert words in (ends[1].note or "")
    assert sorted(sent) == sorted(tx_ids)


def test_a_step_for_review_is_parked_item_by_item_after_a_crash(datp: Kit) -> None:
    @datp.step("t/send", vector=True, on_crash="review")
    def send(batch: Batch) -> None:
        for item in batch:
            item.done()

    datp.use(Pipeline("p").step("t/send").build())
    datp.crash_at("hop.after_step")
    tx_ids = datp.submit_together("p", numbers(3))
    datp.recover()
    assert statuses(datp, tx_ids) == [Status.IN_DOUBT] * 3
    assert {end.status for end in datp.run_together("p", numbers(2))} == {Status.SUCCESS}


def test_steps_that_began_elsewhere_in_the_meantime_are_no_call_for_nothing(datp: Kit) -> None:
    """Redis refuses to mark any of them begun: there is nothing to call."""
    calls: list[int] = []

    @datp.step("t/send", vector=True, on_crash="review")
    def send(batch: Batch) -> None:
        calls.append(len(batch))

    datp.use(Pipeline("p").step("t/send").build())

    def take_over() -> None:
        for tx_id in tx_ids:
            live = datp.connections.live
            live.redis.hincrby(live.keys.state(tx_id), "fence", 1)

    datp.lose_bells()
    tx_ids = [datp.submit("p", data) for data in numbers(2)]
    datp.lose_bells(False)
    failpoints.arm("hop.after_claim", take_over)
    datp.ring_together(tx_ids)
    failpoints.disarm_all()
    assert calls == []
    datp.recover()
