"""One hop runs a vector of transactions; each of them keeps its own fate."""

from __future__ import annotations

import asyncio
import gc
import threading
from collections.abc import Iterator, Sequence
from typing import Any

import pytest
from sqlalchemy.exc import DataError

from datp_tasks import Abort, Call, Fail, Pipeline, Sleep
from datp_tasks.engine import guard
from datp_tasks.live.scripts import ScriptRunner
from datp_tasks.model.status import Status
from datp_tasks.testing import Kit
from datp_tasks.testing.servers import Servers
from tests.engine.guarded import GuardedHop
from tests.support.eventually import eventually

Data = dict[str, Any]
Pairs = list[tuple[str, int]]


def queue(kit: Kit, pipeline: str, inputs: list[Data]) -> Pairs:
    """Submit without anybody hearing it; the pairs that one bell would carry."""
    kit.lose_bells()
    before = len(kit.send.rung)
    for data in inputs:
        kit.submit(pipeline, data)
    kit.lose_bells(False)
    return [pair for _, pairs in kit.send.rung[before:] for pair in pairs]


def ring(kit: Kit, step_type: str, pairs: Any) -> int:
    """One bell for all of them; how many were claimed."""
    return int(kit.celery.tasks[f"datp.step.{step_type}"].apply_async(args=(pairs,)).get())


@pytest.fixture
def calls(datp: Kit) -> list[Any]:
    """Calls of t/anything, which does what its input says."""
    made: list[Any] = []

    @datp.step("t/anything", retry={"max_attempts": 2, "first_s": 60})
    def anything(ctx: Any, data: Data) -> Any:
        made.append(data["what"])
        match data["what"]:
            case "sleep":
                return Sleep(seconds=60) if ctx.sleeps == 0 else {"slept": 1}
            case "call":
                return Call("child", {"n": 1})
            case "fail":
                raise Fail("failed")
            case "abort":
                raise Abort("aborted")
            case "break":
                raise RuntimeError("broken")
            case "switch":
                return Sleep(switch="go") if ctx.switch("go") is None else None
            case "wrong":
                return [1]
        return {"ok": data["n"]}

    @datp.step("t/last")
    def last(ctx: Any, data: Data) -> Data:
        return {**data, "last": True}

    datp.use(
        Pipeline("child", startable=False).step("t/last").build(),
        Pipeline("p").step("t/anything").step("t/last").build(),
    )
    return made


def test_each_transaction_of_a_vector_gets_its_own_outcome(datp: Kit, calls: list[Any]) -> None:
    whats = ["ok", "sleep", "fail", "abort", "break", "call", "switch", "wrong", "ok"]
    pairs = queue(datp, "p", [{"what": what, "n": n} for n, what in enumerate(whats)])
    ring_count = len(datp.send.rung)
    assert ring(datp, "t/anything", pairs) == len(whats)
    assert calls == whats
    now = [datp.status(tx_id).status for tx_id, _ in pairs]
    waiting = {"sleep", "break", "switch", "wrong"}
    ended = {"fail": Status.FAILED, "abort": Status.ABORTED}
    assert now == [
        Status.SLEEPING if what in waiting else ended.get(what, Status.SUCCESS) for what in whats
    ]
    # One bell was enough for all that happened.
    assert len(datp.send.rung) == ring_count
    ends = [datp.finish(tx_id) for tx_id, _ in pairs]
    assert ends[0].output == {"ok": 0, "last": True}
    assert ends[8].output == {"ok": 8, "last": True}
    assert ends[1].output == {"slept": 1, "last": True}
    assert ends[5].output == {"n": 1, "last": True}
    assert [end.status for end in ends[2:5]] == [
        *(Status.FAILED, Status.ABORTED, Status.INTERNAL_ERROR)
    ]
    assert ends[7].status is Status.INTERNAL_ERROR
    assert datp.set_switch(pairs[6][0], "go", True).status is Status.SUCCESS


def test_a_vector_shares_round_trips_and_commits(
    datp: Kit, calls: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    # Sent once a second, however many transactions there were: not part of what a vector costs.
    monkeypatch.setattr(datp.connections.bells.costs, "publish", lambda: None)
    monkeypatch.setattr(datp.connections.bells.counts, "send", lambda: None)
    costs = []
    # The first time is for the servers to get to know the scripts: 50 are on all of a cluster.
    for size in (50, 1, 50):
        pairs = queue(datp, "p", [{"what": "ok", "n": 1}] * size)
        live, record = datp.connections.live, datp.connections.record
        before = (live.round_trips, record.commits)
        ring(datp, "t/anything", pairs)
        costs.append((live.round_trips - before[0], record.commits - before[1]))
        assert {datp.status(tx).status for tx, _ in pairs} == {Status.SUCCESS}
    assert costs[1] == costs[2]
    # The claim, the checkpoint between two steps, and the end, which is the commit.
    assert costs[2] == (3, 1)


@pytest.fixture
def one_shard(datp_servers: Servers, monkeypatch: pytest.MonkeyPatch) -> Iterator[Kit]:
    """Without what is sent once a second, however many transactions there were."""
    kit = Kit(datp_servers, shards=1)
    monkeypatch.setattr(kit.connections.bells.costs, "publish", lambda: None)
    monkeypatch.setattr(kit.connections.bells.counts, "send", lambda: None)
    yield kit
    kit.close()


def calls_of_scripts(kit: Kit, step_type: str, pairs: Pairs) -> int:
    runner: ScriptRunner = vars(kit.connections.live)["_runner"]
    before = runner.calls
    assert ring(kit, step_type, pairs) == len(pairs)
    return runner.calls - before


def test_those_of_a_vector_that_come_to_the_same_place_share_a_call_whatever_their_neighbours_do(
    one_shard: Kit,
) -> None:
    kit = one_shard

    @kit.step("t/take")
    def take(ctx: Any, data: Data) -> Data:
        return data

    @take.rollback
    def give_back(ctx: Any, data: Data, output: Data) -> None:
        pass

    @kit.step("t/perhaps")
    def perhaps(ctx: Any, data: Data) -> Data:
        if data["fails"]:
            raise Fail("no")
        return data

    kit.use(Pipeline("back").step("t/take").step("t/perhaps").step("t/perhaps").build())
    costs = []
    for order in ([0, 1] * 8, [0] * 8 + [1] * 8, [0, 1] * 8, [0, 1]):
        pairs = queue(kit, "back", [{"fails": bool(fails)} for fails in order])
        costs.append(calls_of_scripts(kit, "t/take", pairs))
        ended = [kit.status(tx_id).status for tx_id, _ in pairs]
        assert ended == [Status.FAILED if fails else Status.SUCCESS for fails in order]
    # The first time Redis gets to know the scripts. Claim, checkpoint, the two ways on, and the
    # ends, of which those that were undone may come later.
    assert costs[1] == costs[2] == costs[3] <= 6


def test_ends_that_are_stored_one_by_one_share_a_call(
    one_shard: Kit, monkeypatch: pytest.MonkeyPatch
) -> None:
    kit = one_shard
    kit.use(Pipeline("p").step("t/pass").build())

    @kit.step("t/pass")
    def done(ctx: Any, data: Data) -> Data:
        return data

    record = kit.connections.record
    finish_many = record.finish_many

    def refuses_many(finals: Sequence[Any]) -> Any:
        if len(finals) > 1:
            raise DataError("", {}, ValueError("a value that SQL refuses"))
        return finish_many(finals)

    costs = []
    for size in (2, 2, 8):
        pairs = queue(kit, "p", [{"n": 1}] * size)
        with monkeypatch.context() as patch:
            patch.setattr(record, "finish_many", refuses_many)
            costs.append(calls_of_scripts(kit, "t/pass", pairs))
        assert {kit.status(tx_id).status for tx_id, _ in pairs} == {Status.SUCCESS}
    assert costs[1] == costs[2] == 2


@pytest.mark.parametrize("what", ["ok", "sleep", "call", "break"])
def test_a_hop_leaves_nothing_for_the_garbage_collector(
    datp: Kit, calls: list[Any], what: str
) -> None:
    """What a transaction made is gone with it. Reference cycles of a few objects each cost
    more to find than the step that left them."""
    found: dict[int, list[int]] = {2: [], 40: []}
    for size in (2, 40) * 2:
        pairs = queue(datp, "p", [{"what": what, "n": 1}] * size)
        gc.collect()
        gc.disable()
        try:
            assert ring(datp, "t/anything", pairs) == size
            found[size].append(gc.collect())
        finally:
            gc.enable()
    # Some are left by what is loaded once and by other threads, however many transactions run.
    assert min(found[40]) < max(found[2]) + 40


def test_a_bell_larger_than_allowed_is_run_in_parts(datp: Kit, calls: list[Any]) -> None:
    size = datp.settings.vector_max + 5
    pairs = queue(datp, "p", [{"what": "ok", "n": 1}] * size)
    assert ring(datp, "t/anything", pairs) == size
    assert len(calls) == size


def test_a_doubled_bell_changes_nothing(datp: Kit, calls: list[Any]) -> None:
    pairs = queue(datp, "p", [{"what": "ok", "n": 1}, {"what": "sleep", "n": 1}])
    assert ring(datp, "t/anything", pairs + pairs) == 2
    ended = [datp.status(tx) for tx, _ in pairs]
    assert [each.status for each in ended] == [Status.SUCCESS, Status.SLEEPING]
    for _ in range(3):
        assert ring(datp, "t/anything", pairs) == 0
        assert ring(datp, "t/last", pairs) == 0
    assert [datp.status(tx) for tx, _ in pairs] == ended
    assert calls == ["ok", "sleep"]


def test_a_bell_from_before_the_sleep_does_not_wake_it_twice(datp: Kit, calls: list[Any]) -> None:
    [pair] = queue(datp, "p", [{"what": "sleep", "n": 1}])
    ring(datp, "t/anything", [pair])
    datp.lose_bells()
    datp.advance(seconds=60)
    datp.lose_bells(False)
    # Queued again: the bell of the first time is too old, whichever task it names.
    assert datp.status(pair[0]).status is Status.QUEUED
    assert ring(datp, "t/anything", [pair]) == 0
    assert ring(datp, "t/anything", [(pair[0], pair[1] + 1)]) == 1
    assert datp.status(pair[0]).status is Status.SUCCESS


@pytest.mark.parametrize(
    "garbage",
    [
        None,
        5,
        "t00-x",
        [],
        [[]],
        [["t00-" + "0" * 32, 1]],
        [["t00-" + "0" * 32, "1"]],
        [["../../etc", 1], [None, None], {"a": 1}],
        [["t99-" + "f" * 32, 2**70]],
    ],
)
def test_a_forged_bell_is_a_bell_for_nothing(datp: Kit, calls: list[Any], garbage: Any) -> None:
    assert ring(datp, "t/anything", garbage) == 0
    assert calls == []


def test_a_bell_of_the_wrong_step_runs_the_right_one(datp: Kit, calls: list[Any]) -> None:
    pairs = queue(datp, "p", [{"what": "ok", "n": 7}])
    assert ring(datp, "t/last", pairs) == 1
    assert datp.status(pairs[0][0]).output == {"ok": 7, "last": True}
    assert calls == ["ok"]


def test_async_steps_of_a_vector_run_at_the_same_time(datp: Kit) -> None:
    size = 20
    together = asyncio.Barrier(size)

    @datp.step("t/meet", timeout_s=20, retry={"max_attempts": 1})
    async def meet(ctx: Any, data: Data) -> Data:
        # Nobody gets past this before all are here.
        await together.wait()
        return {"n": data["n"]}

    datp.use(Pipeline("p").step("t/meet").build())
    pairs = queue(datp, "p", [{"n": n} for n in range(size)])
    assert ring(datp, "t/meet", pairs) == size
    assert [datp.status(tx).output for tx, _ in pairs] == [{"n": n} for n in range(size)]


def test_async_and_sync_steps_can_share_a_vector(datp: Kit) -> None:
    threads: dict[str, set[str]] = {"sync": set(), "async": set()}

    @datp.step("t/route")
    def route(ctx: Any, data: Data) -> Call:
        return Call(data["to"], data)

    @datp.step("t/sync")
    def sync(ctx: Any, data: Data) -> Data:
        threads["sync"].add(threading.current_thread().name)
        return {"by": "sync"}

    @datp.step("t/async")
    async def asynchronous(ctx: Any, data: Data) -> Data:
        threads["async"].add(threading.current_thread().name)
        await asyncio.sleep(0)
        if data["n"] == 1:
            raise Fail("async no")
        return {"by": "async"}

    datp.use(
        Pipeline("sync", startable=False).step("t/sync").build(),
        Pipeline("async", startable=False).step("t/async").build(),
        Pipeline("p").step("t/route").build(),
    )
    pairs = queue(datp, "p", [{"to": ("sync", "async")[n % 2], "n": n} for n in range(6)])
    assert ring(datp, "t/route", pairs) == 6
    ends = [datp.status(tx) for tx, _ in pairs]
    assert [end.status for end in ends] == [
        Status.FAILED if n == 1 else Status.SUCCESS for n in range(6)
    ]
    assert [(end.output or {}).get("by") for end in ends] == [
        *("sync", None, "sync", "async", "sync", "async")
    ]
    assert not threads["sync"] & threads["async"]


@pytest.mark.parametrize("error", [asyncio.CancelledError, SystemExit, KeyError])
def test_an_async_step_cannot_pull_its_neighbours_down(
    datp: Kit, error: type[BaseException]
) -> None:
    @datp.step("t/rogue", retry={"max_attempts": 1})
    async def rogue(ctx: Any, data: Data) -> None:
        await asyncio.sleep(0)
        if data["n"] == 1:
            raise error

    datp.use(Pipeline("p").step("t/rogue").build())
    for _ in range(2):
        pairs = queue(datp, "p", [{"n": n} for n in range(3)])
        assert ring(datp, "t/rogue", pairs) == 3
        assert [datp.status(tx).status for tx, _ in pairs] == [
            *(Status.SUCCESS, Status.INTERNAL_ERROR, Status.SUCCESS)
        ]


def test_async_steps_that_are_done_do_not_wait_for_slow_neighbours(
    datp_servers: Servers, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(guard, "STUCK_MS", 50)
    kit = Kit(datp_servers)
    may_end = {"quick": threading.Event(), "medium": threading.Event(), "slow": threading.Event()}
    may_end["quick"].set()

    @kit.step("t/mixed", timeout_s=30, retry={"max_attempts": 1})
    async def mixed(ctx: Any, data: Data) -> Data:
        await asyncio.to_thread(may_end[data["how"]].wait, 20)
        return data

    @kit.step("t/after")
    def after(ctx: Any, data: Data) -> None: ...

    kit.use(Pipeline("p").step("t/mixed").step("t/after").build())
    pairs = queue(kit, "p", [{"how": how} for how in may_end])
    quick, medium, slow = (tx for tx, _ in pairs)

    def status(tx_id: str) -> Status:
        return kit.status(tx_id).status

    hop = GuardedHop(kit)
    hop.start("t/mixed", pairs)

    def has_ended(tx_id: str) -> bool:
        hop.go_on()
        return status(tx_id) is Status.SUCCESS

    try:
        eventually(lambda: has_ended(quick))
        assert (status(medium), status(slow)) == (Status.RUNNING, Status.RUNNING)
        may_end["medium"].set()
        eventually(lambda: has_ended(medium))
        assert status(slow) is Status.RUNNING
    finally:
        for event in may_end.values():
            event.set()
        hop.join()
    hop.hear()
    assert status(slow) is Status.SUCCESS
    kit.close()
