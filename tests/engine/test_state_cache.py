"""A worker keeps states that it wrote, and never believes one that is out of date."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from datp_tasks import Pipeline, Sleep
from datp_tasks.engine import hop, state_cache
from datp_tasks.engine.state_cache import StateCache
from datp_tasks.live.live_types import Claimed
from datp_tasks.live.script_replies import claimed
from datp_tasks.model.state import PipelineFrame, State
from datp_tasks.model.status import Status
from datp_tasks.testing import Kit
from datp_tasks.testing.servers import Servers

Data = dict[str, Any]


@pytest.fixture
def sent(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """For each claim, whether the JSON of the state was sent along."""
    found: list[bool] = []

    def looked_at(tx_id: str, reply: Any) -> Any:
        answer = claimed(tx_id, reply)
        if isinstance(answer, Claimed):
            found.append(bool(answer.fields["state"]))
        return answer

    monkeypatch.setattr(hop, "claimed", looked_at)
    return found


def declare(kit: Kit) -> None:
    @kit.step("t/nap")
    def nap(ctx: Any, data: Data) -> Data | Sleep:
        return Sleep(seconds=60) if ctx.sleeps < 3 else {**data, "sleeps": ctx.sleeps}

    @kit.step("t/add")
    def add(ctx: Any, data: Data) -> Data:
        return {"n": data["n"] + 1}

    kit.use(
        Pipeline("nap").step("t/add").step("t/nap").build(),
        Pipeline("hops").step("t/add").step("t/add", dispatch="queue").step("t/add").build(),
    )


def elsewhere(work: Any) -> None:
    """Another thread is another worker, with a cache of its own."""
    thread = threading.Thread(target=work)
    thread.start()
    thread.join(30)


def test_a_transaction_that_wakes_on_its_worker_is_claimed_without_its_json(
    datp: Kit, sent: list[bool]
) -> None:
    declare(datp)
    summary = datp.run("nap", {"n": 1})
    assert summary.output == {"n": 2, "sleeps": 3}
    assert sent == [True, False, False, False]


def test_a_message_to_the_same_worker_needs_no_json(datp: Kit, sent: list[bool]) -> None:
    declare(datp)
    assert datp.run("hops", {"n": 1}).output == {"n": 4}
    assert sent == [True, False]


def test_a_state_that_another_worker_changed_is_read_again(datp: Kit, sent: list[bool]) -> None:
    declare(datp)
    tx_id = datp.submit("nap", {"n": 1})
    elsewhere(lambda: datp.advance(seconds=60))
    assert datp.status(tx_id).status is Status.SLEEPING
    # This worker still has the state of its own sleep; the other one wrote a newer one.
    datp.advance(seconds=60)
    elsewhere(lambda: datp.advance(seconds=60))
    assert datp.status(tx_id).output == {"n": 2, "sleeps": 3}
    assert sent == [True, True, True, True]


def test_a_state_that_another_worker_had_claimed_is_read_again_with_its_deltas(
    datp: Kit, sent: list[bool]
) -> None:
    """The other worker died after a checkpoint, so only deltas were added to the same JSON."""
    declare(datp)

    @datp.step("t/gate")
    def gate(ctx: Any, data: Data) -> Sleep | None:
        return Sleep(seconds=60) if ctx.sleeps == 0 else None

    @datp.step("t/count")
    def count(ctx: Any, data: Data) -> Data:
        return {"n": data["n"] + 1, "attempt": ctx.attempt}

    datp.use(Pipeline("p").step("t/gate").step("t/add").step("t/add").step("t/count").build())
    tx_id = datp.submit("p", {"n": 1})
    datp.crash_at("hop.after_checkpoint", nth=2)
    elsewhere(lambda: datp.advance(seconds=60))
    assert datp.send.crashes == 1
    datp.recover()
    # Only the step that was open when the worker died counts the crash.
    assert datp.status(tx_id).output == {"n": 4, "attempt": 1}
    assert sent == [True, True, True]


def test_a_transaction_that_redis_lost_is_not_taken_from_the_cache(
    datp: Kit, sent: list[bool]
) -> None:
    """Versions are counted anew after the loss, so that they alone could be mistaken."""
    seen: list[int] = []
    declare(datp)

    @datp.step("t/watch")
    def watch(ctx: Any, data: Data) -> Sleep | None:
        seen.append(data["n"])
        return Sleep(seconds=600) if ctx.sleeps == 0 else None

    datp.use(Pipeline("q").step("t/add").step("t/watch").build())
    tx_id = datp.submit("q", {"n": 1})
    for key in datp.connections.redis.scan_iter(match=f"{datp.settings.key_prefix}:*"):
        datp.connections.redis.delete(key)
    datp.run_job("pipeline_cache")
    elsewhere(datp.recover)
    datp.advance(seconds=601)
    assert datp.status(tx_id).output == {"n": 2}
    assert seen == [2, 2, 2]
    assert sent == [True, True, True]


def test_a_cache_without_room_only_costs_time(
    datp_servers: Servers, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(state_cache, "ENTRIES_MAX", 0)
    kit = Kit(datp_servers)
    declare(kit)
    assert kit.run("nap", {"n": 1}).output == {"n": 2, "sleeps": 3}
    kit.close()


def state(n: int) -> State:
    return State([PipelineFrame("p", "v")], {"n": n})


def test_the_oldest_entry_leaves_first() -> None:
    cache = StateCache(2)
    for number in (1, 2, 3):
        cache.put(f"tx{number}", (number, 7), state(number), "{}")
    assert len(cache) == 2
    kept = cache.take(["tx1", "tx2", "tx3"])
    assert {tx: each.name for tx, each in kept.items()} == {"tx2": "2/7", "tx3": "3/7"}


def test_an_entry_is_handed_out_once() -> None:
    cache = StateCache(2)
    cache.put("tx", (1, 7), state(1), "{}")
    assert cache.take(["tx"])["tx"].state == state(1)
    assert cache.take(["tx"]) == {}


def test_an_entry_that_does_not_come_back_in_time_is_dropped() -> None:
    now_s = 100.0
    cache = StateCache(10, kept_s=300, now_s=lambda: now_s)
    cache.put("early", (1, 7), state(1), "{}")
    now_s += 200
    cache.put("late", (1, 7), state(2), "{}")
    now_s += 100
    assert cache.take(["early"]) == {}
    assert len(cache) == 1
    # Writing another one lets go of the memory, too.
    now_s += 200
    cache.put("new", (1, 7), state(3), "{}")
    assert cache.take(["late", "new"]).keys() == {"new"}


def test_the_cache_is_bounded_by_the_size_of_its_states_too() -> None:
    cache = StateCache(100, chars_max=10)
    for number in range(3):
        cache.put(f"tx{number}", (1, 7), state(number), "x" * 4)
    cache.put("large", (1, 7), state(9), "x" * 11)
    assert len(cache) == 2
    for _ in range(5):
        # Writing one again does not count it twice.
        cache.put("tx", (1, 7), state(1), "x" * 6)
    assert list(cache.take(["tx0", "tx1", "tx2", "tx"])) == ["tx2", "tx"]
