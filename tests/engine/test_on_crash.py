"""What becomes of a step that a worker died in is the step's choice."""

from __future__ import annotations

import threading
import time
from typing import Any

import pytest

from datp_tasks import Done, DontKnow, Fail, NotDone, Pipeline
from datp_tasks.engine.registry import StepType
from datp_tasks.failpoints import SimulatedCrash
from datp_tasks.model.status import Status
from datp_tasks.testing import Kit
from datp_tasks.testing.servers import Servers
from tests.support.eventually import eventually

Data = dict[str, Any]

#: Points at which a step that is marked by itself has begun.
IN_THE_STEP = ("hop.after_begin", "hop.after_step")


def crash_in_step(kit: Kit, tries: list[Any], on_crash: str, **options: Any) -> StepType:
    @kit.step("t/act", on_crash=on_crash, **options)
    def act(ctx: Any, data: Data) -> Data:
        tries.append(ctx.attempt)
        return {"acted": ctx.attempt}

    kit.use(Pipeline("p").step("t/act").build())
    return act


def test_rerun_runs_the_step_again_and_counts_the_try(datp: Kit) -> None:
    tries: list[int] = []
    crash_in_step(datp, tries, "rerun")
    datp.crash_at("hop.after_step")
    tx_id = datp.submit("p", {})
    assert datp.status(tx_id).status is Status.RUNNING
    datp.recover()
    assert datp.status(tx_id).output == {"acted": 2}
    assert tries == [1, 2]


@pytest.mark.parametrize("point", IN_THE_STEP)
def test_review_parks_the_transaction_and_runs_nothing_again(datp: Kit, point: str) -> None:
    tries: list[int] = []
    crash_in_step(datp, tries, "review")
    datp.crash_at(point)
    tx_id = datp.submit("p", {})
    datp.recover()
    summary = datp.status(tx_id)
    assert summary.status is Status.IN_DOUBT
    assert summary.note == (
        "a worker was lost in the middle of step 1 of p (t/act); a person must decide"
    )
    datp.advance(days=2)
    assert datp.status(tx_id).status is Status.IN_DOUBT
    assert tries == ([1] if point == "hop.after_step" else [])
    assert datp.connections.live.sizes()["exceptionZ"] == 1


def test_what_is_in_doubt_stays_so_when_redis_loses_everything(datp: Kit) -> None:
    tries: list[int] = []
    crash_in_step(datp, tries, "review")
    datp.crash_at("hop.after_step")
    tx_id = datp.submit("p", {})
    datp.recover()
    redis = datp.connections.redis
    for key in redis.scan_iter(match=f"{datp.settings.key_prefix}:*", count=1_000):
        redis.delete(key)
    datp.recover()
    assert datp.status(tx_id).status is Status.IN_DOUBT
    assert tries == [1]


def test_review_is_not_needed_when_the_step_had_not_begun(datp: Kit) -> None:
    tries: list[int] = []
    crash_in_step(datp, tries, "review")
    datp.crash_at("hop.after_claim")
    tx_id = datp.submit("p", {})
    datp.recover()
    assert datp.status(tx_id).status is Status.SUCCESS
    assert len(tries) == 1


def test_a_step_that_must_be_reviewed_does_not_put_its_neighbours_in_doubt(datp: Kit) -> None:
    tries: list[str] = []

    @datp.step("t/act", on_crash="review")
    def act(ctx: Any, data: Data) -> None:
        tries.append(data["name"])
        if data["name"] == "b":
            raise SimulatedCrash

    datp.use(Pipeline("p").step("t/act").build())
    datp.lose_bells()
    txs = [datp.submit("p", {"name": name}) for name in "abc"]
    pairs = [pair for _, rung in datp.send.rung for pair in rung]
    datp.lose_bells(False)
    with pytest.raises(SimulatedCrash):
        datp.celery.tasks["datp.step.t/act"].apply_async(args=(pairs,))
    datp.recover()
    # a was done and written down; c had not begun.
    assert [datp.status(tx).status for tx in txs] == [
        *(Status.SUCCESS, Status.IN_DOUBT, Status.SUCCESS)
    ]
    assert tries == ["a", "b", "c"]


@pytest.mark.parametrize("point", IN_THE_STEP)
@pytest.mark.parametrize(
    ("answer", "status", "output", "runs_again"),
    [
        (Done({"found": True}), Status.SUCCESS, {"found": True}, False),
        (Done(), Status.SUCCESS, {"n": 1}, False),
        (NotDone(), Status.SUCCESS, {"acted": 2}, True),
        (DontKnow("bank is closed"), Status.IN_DOUBT, None, False),
        ("yes", Status.IN_DOUBT, None, False),
    ],
)
def test_the_answer_of_a_probe_decides(
    datp: Kit, point: str, answer: Any, status: Status, output: Any, runs_again: bool
) -> None:
    tries: list[int] = []
    asked: list[tuple[Data, str]] = []
    act = crash_in_step(datp, tries, "probe", retry={"max_attempts": 1})

    @act.probe
    def probe(ctx: Any, data: Data) -> Any:
        asked.append((data, ctx.idempotency_key))
        return answer

    datp.crash_at(point)
    tx_id = datp.submit("p", {"n": 1})
    before = len(tries)
    datp.recover()
    summary = datp.finish(tx_id)
    assert (summary.status, summary.output) == (status, output)
    assert asked == [({"n": 1}, f"{tx_id}:0")]
    assert len(tries) - before == int(runs_again)
    if isinstance(answer, DontKnow):
        assert summary.note == "the probe of step 1 of p (t/act) does not know: bank is closed"


def test_a_step_with_a_probe_that_did_not_crash_is_not_probed(datp: Kit) -> None:
    tries: list[int] = []
    act = crash_in_step(datp, tries, "probe")

    @act.probe
    def probe(ctx: Any, data: Data) -> Any:
        raise AssertionError("nobody crashed")

    assert datp.run("p", {}).status is Status.SUCCESS


def test_a_step_has_its_whole_time_after_a_slow_probe(datp: Kit) -> None:
    """The guard kills the process of a step that is over its limit: a probe has one of its own."""
    overdue_s: list[float] = []

    @datp.step("t/pay", on_crash="probe", timeout_s=60)
    def pay(ctx: Any, data: Data) -> None:
        overdue_s.append(datp.process.worker.hop.round.overdue_s())

    @pay.probe
    def look(ctx: Any, data: Data) -> NotDone:
        time.sleep(0.5)
        overdue_s.append(datp.process.worker.hop.round.overdue_s())
        return NotDone()

    datp.use(Pipeline("p").step("t/pay").build())
    datp.crash_at("hop.after_begun")
    tx_id = datp.submit("p", {})
    datp.recover()
    assert datp.status(tx_id).status is Status.SUCCESS
    asked_s, ran_s = overdue_s
    assert asked_s > -59.6 > ran_s


def test_an_async_probe_is_asked_too(datp: Kit) -> None:
    tries: list[int] = []
    act = crash_in_step(datp, tries, "probe")

    @act.probe
    async def probe(ctx: Any, data: Data) -> Done:
        return Done({"found": True})

    datp.crash_at("hop.after_step")
    tx_id = datp.submit("p", {})
    datp.recover()
    assert datp.status(tx_id).output == {"found": True}


def test_without_a_probe_function_a_person_must_decide(datp: Kit) -> None:
    tries: list[int] = []
    crash_in_step(datp, tries, "probe")
    datp.crash_at("hop.after_step")
    tx_id = datp.submit("p", {})
    datp.recover()
    assert datp.status(tx_id).status is Status.IN_DOUBT
    assert tries == [1]


@pytest.mark.parametrize("trouble", ["raises", "fails", "hangs"])
def test_a_probe_that_breaks_is_asked_again_and_the_step_never_simply_run(
    datp: Kit, trouble: str
) -> None:
    tries: list[int] = []
    asked: list[int] = []
    act = crash_in_step(datp, tries, "probe", timeout_s=0.1, retry={"max_attempts": 3})

    @act.probe
    def probe(ctx: Any, data: Data) -> Done:
        asked.append(ctx.attempt)
        if len(asked) < 3:
            match trouble:
                case "raises":
                    raise OSError("the bank is closed")
                case "fails":
                    raise Fail("no")
                case "hangs":
                    threading.Event().wait(30)
        return Done({"found": True})

    datp.crash_at("hop.after_step")
    tx_id = datp.submit("p", {})
    datp.recover()
    assert datp.finish(tx_id).output == {"found": True}
    assert tries == [1]
    assert len(asked) == 3


def test_a_probe_that_never_answers_leaves_the_decision_to_a_person(datp: Kit) -> None:
    tries: list[int] = []
    act = crash_in_step(datp, tries, "probe", retry={"max_attempts": 2})

    @act.probe
    def probe(ctx: Any, data: Data) -> Done:
        raise OSError("the bank is closed")

    datp.crash_at("hop.after_step")
    tx_id = datp.submit("p", {})
    datp.recover()
    summary = datp.finish(tx_id)
    assert summary.status is Status.IN_DOUBT
    assert "OSError (error " in (summary.note or "")
    assert tries == [1]


def test_a_cancel_while_the_probe_is_asked_again_waits_for_its_answer(datp: Kit) -> None:
    undone: list[Any] = []
    asked: list[int] = []
    act = crash_in_step(datp, [], "probe", retry={"max_attempts": 5})

    @act.probe
    def probe(ctx: Any, data: Data) -> Done:
        asked.append(ctx.attempt)
        if len(asked) == 1:
            # In the middle of the probe; and while it waits for its next try, below.
            datp.client.cancel(ctx.tx_id, "enough")
        if len(asked) < 3:
            raise OSError("the bank is closed")
        return Done({"found": True})

    @act.rollback
    def undo(ctx: Any, data: Data, output: Data) -> None:
        undone.append(output)

    datp.use(Pipeline("p").step("t/act").step("util/delay", params={"seconds": 60}).build())
    datp.crash_at("hop.after_step")
    tx_id = datp.submit("p", {})
    datp.recover()
    assert datp.status(tx_id).status is Status.SLEEPING
    datp.client.cancel(tx_id, "enough")
    summary = datp.finish(tx_id)
    assert (summary.status, summary.note) == (Status.CANCELLED, "enough")
    assert undone == [{"found": True}]
    assert len(asked) == 3


def test_a_cancel_after_a_crash_waits_until_it_is_known_what_the_step_did(datp: Kit) -> None:
    undone: list[Any] = []
    tries: list[int] = []
    act = crash_in_step(datp, tries, "probe")

    @act.probe
    def probe(ctx: Any, data: Data) -> Done:
        return Done({"found": True})

    @act.rollback
    def undo(ctx: Any, data: Data, output: Data) -> None:
        undone.append(output)

    datp.use(Pipeline("p").step("t/act").step("util/delay", params={"seconds": 60}).build())
    datp.crash_at("hop.after_step")
    tx_id = datp.submit("p", {})
    datp.client.cancel(tx_id, "enough")
    datp.recover()
    assert datp.status(tx_id).status is Status.CANCELLED
    assert undone == [{"found": True}]
    assert tries == [1]


def test_a_step_that_kills_its_workers_is_parked(datp_servers: Servers) -> None:
    kit = Kit(datp_servers, crashes_max=3)
    tries: list[int] = []

    @kit.step("t/poison")
    def poison(ctx: Any, data: Data) -> None:
        tries.append(ctx.attempt)
        raise SimulatedCrash

    kit.use(Pipeline("p").step("t/poison").build())
    tx_id = kit.submit("p", {})
    for _ in range(6):
        kit.recover()
    summary = kit.status(tx_id)
    assert summary.status is Status.IN_DOUBT
    assert summary.note == "step 1 of p (t/poison) lost its worker 3 times"
    assert tries == [1, 2, 3]
    kit.close()


def test_a_poisonous_neighbour_does_not_count_against_the_others(datp_servers: Servers) -> None:
    kit = Kit(datp_servers, crashes_max=3)

    @kit.step("t/mixed")
    def mixed(ctx: Any, data: Data) -> Data:
        if data["poison"]:
            raise SimulatedCrash
        return {"attempt": ctx.attempt}

    kit.use(Pipeline("p").step("t/mixed").build())
    kit.run("p", {"poison": False})
    # It is known to be quick by now, so that many would share a bell.
    eventually(lambda: kit.connections.bells.costs.vector_size("p/0") > 3)
    kit.send.rung.clear()
    kit.lose_bells()
    txs = [kit.submit("p", {"poison": poison}) for poison in (False, True, False)]
    pairs = [pair for _, rung in kit.send.rung for pair in rung]
    kit.lose_bells(False)
    with pytest.raises(SimulatedCrash):
        kit.celery.tasks["datp.step.t/mixed"].apply_async(args=(pairs,))
    for _ in range(6):
        kit.recover()
    assert [kit.status(tx).status for tx in txs] == [
        *(Status.SUCCESS, Status.IN_DOUBT, Status.SUCCESS)
    ]
    kit.close()


def test_a_rollback_that_crashed_is_run_again(datp: Kit) -> None:
    undone: list[tuple[int, str]] = []

    @datp.step("t/do", on_crash="review")
    def do(ctx: Any, data: Data) -> None: ...

    @do.rollback
    def undo(ctx: Any, data: Data, output: Data) -> None:
        undone.append((ctx.attempt, ctx.idempotency_key))
        if ctx.attempt == 1:
            raise SimulatedCrash

    @datp.step("t/fail")
    def fail(ctx: Any, data: Data) -> None:
        raise Fail("no")

    datp.use(Pipeline("p").step("t/do").step("t/fail").build())
    tx_id = datp.submit("p", {})
    datp.recover()
    assert datp.status(tx_id).status is Status.FAILED
    assert undone == [(1, f"{tx_id}:0:undo"), (2, f"{tx_id}:0:undo")]


def test_a_crash_after_days_of_work_is_noticed_too(datp: Kit) -> None:
    datp.use(Pipeline("p").step("util/delay", params={"seconds": 2 * 86_400}).build())
    tx_id = datp.submit("p", {})
    for _ in range(3):
        # Several times, so that a silent node would be forgotten by now.
        datp.advance(days=0.5)
    datp.crash_at("hop.after_step")
    datp.advance(days=0.5)
    assert datp.status(tx_id).status is Status.RUNNING
    datp.recover()
    assert datp.status(tx_id).status is Status.SUCCESS


def test_a_reaper_that_dies_half_way_is_followed_by_another(datp: Kit) -> None:
    tries: list[int] = []
    crash_in_step(datp, tries, "rerun")
    datp.crash_at("hop.after_step")
    tx_id = datp.submit("p", {})
    datp.crash_at("reaper.after_fence")
    datp.clock.advance(seconds=60)
    datp.run_job("reaper")
    datp.clock.advance(seconds=60)
    with pytest.raises(SimulatedCrash):
        datp.run_job("reaper")
    assert datp.status(tx_id).status is Status.RUNNING
    assert datp.run_job("reaper").taken == 1
    assert datp.status(tx_id).output == {"acted": 2}
    assert datp.run_job("reaper").nodes == 0


def test_a_node_that_only_paused_keeps_what_it_has(datp: Kit) -> None:
    """Silent once is not dead: the second look comes after a while."""
    tries: list[int] = []

    @datp.step("t/slow")
    def slow(ctx: Any, data: Data) -> None:
        tries.append(ctx.attempt)
        datp.clock.advance(seconds=datp.settings.node_stale_ms / 1_000 + 1)
        datp.run_job("reaper")
        datp.process.heartbeat.beat_once()
        datp.clock.advance(seconds=datp.settings.node_grace_ms / 1_000 + 1)
        datp.run_job("reaper")

    datp.use(Pipeline("p").step("t/slow").build())
    assert datp.run("p", {}).status is Status.SUCCESS
    assert tries == [1]
