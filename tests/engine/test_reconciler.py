"""The reconciler: what it looks at in a run is bounded, and everything gets its turn."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from sqlalchemy import event

from datp_tasks import Pipeline, Request, Sleep
from datp_tasks.failpoints import SimulatedCrash
from datp_tasks.jobs import reconciler
from datp_tasks.model.status import Status
from datp_tasks.testing import Kit
from datp_tasks.testing.servers import Servers

Data = dict[str, Any]
#: So small that a few dozen rows are a backlog.
BATCH_MAX = 3


@pytest.fixture
def kit(datp_servers: Servers, monkeypatch: pytest.MonkeyPatch) -> Iterator[Kit]:
    monkeypatch.setattr(reconciler, "BATCH_MAX", BATCH_MAX)
    kit = declared(Kit(datp_servers))
    yield kit
    kit.close()


def declared(kit: Kit) -> Kit:
    @kit.step("t/do")
    def do(ctx: Any, data: Data) -> None: ...

    @kit.step("t/nap")
    def nap(ctx: Any, data: Data) -> Sleep | None:
        return Sleep(seconds=600) if ctx.sleeps == 0 else None

    kit.use(
        Pipeline("do").step("t/do").build(),
        Pipeline("nap").step("t/nap").build(),
        Pipeline("elsewhere", group="other").step("t/do").build(),
    )
    return kit


def never_reaches_redis(kit: Kit, external_id: str) -> None:
    kit.crash_at("submit.after_accept")
    with pytest.raises(SimulatedCrash):
        kit.submit("do", {"secret": external_id}, external_id=external_id)


def lose(kit: Kit, tx_id: str) -> None:
    """Redis forgets one transaction, and only that one."""
    keys = kit.connections.live.keys
    kit.connections.redis.delete(keys.state(tx_id))
    kit.connections.redis.zrem(keys.of_tx(tx_id, "sleepingZ"), tx_id)


@contextmanager
def statements(kit: Kit) -> Iterator[list[str]]:
    """What PostgreSQL is asked meanwhile."""
    asked: list[str] = []

    def hear(connection: Any, cursor: Any, statement: str, *rest: Any) -> None:
        asked.append(statement)

    event.listen(kit.connections.engine, "before_cursor_execute", hear)
    try:
        yield asked
    finally:
        event.remove(kit.connections.engine, "before_cursor_execute", hear)


# Rows that never reached Redis.


def test_a_young_row_is_placed_in_the_next_run_however_many_are_open(kit: Kit) -> None:
    for _ in range(20 * BATCH_MAX):
        kit.submit("nap", {})
    kit.clock.advance(seconds=60)
    never_reaches_redis(kit, "young")
    kit.clock.advance(seconds=reconciler.PLACE_AFTER_MS / 1_000)
    assert kit.run_job("reconciler").placed == 1
    assert kit.client.find("local", "young").status is Status.SUCCESS


def test_a_row_is_placed_within_seconds_of_its_acceptance(kit: Kit) -> None:
    settings = kit.settings
    assert reconciler.PLACE_AFTER_MS / 1_000 + settings.reconciler_period_s <= 5
    never_reaches_redis(kit, "young")
    kit.clock.advance(seconds=reconciler.PLACE_AFTER_MS / 1_000 - 0.001)
    assert kit.run_job("reconciler").placed == 0
    kit.clock.advance(seconds=settings.reconciler_period_s)
    assert kit.run_job("reconciler").placed == 1


def test_all_rows_of_a_burst_are_placed_and_none_is_forgotten_between_two_runs(kit: Kit) -> None:
    """More than a run looks at among the newest ones: the rest has its turn in the next runs."""
    for number in range(30 * BATCH_MAX):
        never_reaches_redis(kit, f"n{number}")
    kit.clock.advance(seconds=60)
    placed = [kit.run_job("reconciler").placed for _ in range(10)]
    assert sum(placed) == 30 * BATCH_MAX
    assert 0 < placed[0] < 30 * BATCH_MAX


def test_every_row_of_the_window_has_its_turn(kit: Kit) -> None:
    txs = []
    for _ in range(40 * BATCH_MAX):
        txs.append(kit.submit("nap", {}))
        kit.clock.advance(seconds=1)
    kit.run_job("reconciler")
    for tx_id in (txs[0], txs[60], txs[100]):
        lose(kit, tx_id)
        runs = [kit.run_job("reconciler").placed for _ in range(12)]
        assert sum(runs) == 1


def test_a_row_whose_commit_came_late_is_placed(kit: Kit) -> None:
    """A row has the time at which its commit began, so a younger one may be seen before it."""
    for _ in range(20 * BATCH_MAX):
        kit.submit("nap", {})
    kit.clock.advance(seconds=5)
    kit.run_job("reconciler")
    kit.clock.advance(seconds=-4)
    never_reaches_redis(kit, "late")
    kit.clock.advance(seconds=6)
    assert kit.run_job("reconciler").placed == 1


def test_no_data_is_read_of_rows_that_are_in_their_place(kit: Kit) -> None:
    for _ in range(5):
        kit.submit("nap", {"big": "x" * 10_000})
    kit.clock.advance(seconds=10)
    with statements(kit) as asked:
        kit.run_job("reconciler")
        kit.clock.advance(days=1)
        kit.run_job("reconciler")
    assert any("tx_summary" in each for each in asked)
    assert [each for each in asked if "input" in each] == []


# Bells that were lost.


def queued(kit: Kit, pipeline: str, count: int) -> list[str]:
    kit.lose_bells()
    found = [kit.submit(pipeline, {}) for _ in range(count)]
    kit.lose_bells(False)
    return found


def scores(kit: Kit) -> Counter[float]:
    return Counter(score for _, score in kit.connections.live.listed("queuedZ", rows_max=10_000))


def test_what_is_not_rung_keeps_its_place_in_the_line(datp: Kit) -> None:
    declared(datp)
    queued(datp, "do", 80)
    before = datp.connections.live.server_now_ms()
    datp.clock.advance(seconds=60)
    datp.lose_bells()
    rung = datp.run_job("reconciler", backlog=lambda group: 80).rung
    now = datp.connections.live.server_now_ms()
    assert 0 < rung < 80
    assert scores(datp) == {before: 80 - rung, now: rung}


def test_a_lost_bell_of_an_idle_group_does_not_wait_for_the_backlog_of_another(
    datp_servers: Servers,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A run reads a third of the line, and rings for a few at its front: the next one goes on."""
    monkeypatch.setattr(reconciler, "BATCH_MAX", 20)
    kit = declared(Kit(datp_servers, shards=1))
    kit.lose_bells()
    kit.client.submit_many([Request(pipeline="do", input={}) for _ in range(600)])
    kit.clock.advance(seconds=1)
    lost = kit.submit("elsewhere", {})
    kit.clock.advance(seconds=60)
    kit.send.rung.clear()
    for _ in range(5):
        kit.run_job("reconciler", backlog=lambda group: 1_000 if group == "master" else 0)
    assert (lost, 1) in [pair for _, pairs in kit.send.rung for pair in pairs]
    kit.close()


def test_each_busy_group_gets_some_bells(kit: Kit) -> None:
    queued(kit, "do", 60)
    queued(kit, "elsewhere", 5)
    kit.clock.advance(seconds=60)
    kit.send.rung.clear()
    kit.lose_bells()
    for _ in range(5):
        kit.run_job("reconciler", backlog=lambda group: 1_000)
    rung = [tx for _, pairs in kit.send.rung for tx, _ in pairs]
    assert len(rung) == len(set(rung)), "none is rung twice before its time"
    groups = [each["group"] for each in kit.connections.live.fields_many(rung)]
    assert groups.count("other") == 5


def test_messages_of_a_group_whose_workers_are_busy_stay_few(kit: Kit) -> None:
    """Each rings again when it has waited twice as long as at its last bell, not in every run."""
    count, period_s = 5, kit.settings.ring_again_after_ms / 1_000
    queued(kit, "do", count)
    kit.lose_bells()
    messages = []
    for _ in range(64):
        kit.clock.advance(seconds=period_s)
        kit.run_job("reconciler", backlog=lambda group: len(kit.send.rung))
        messages.append(len(kit.send.rung))
    # The first ones, then one for each at 10, 20, 40 s ...
    assert messages[-1] <= count * 8
    assert [messages[n - 1] - messages[n // 2 - 1] for n in (8, 16, 32, 64)] == [count] * 4


def test_a_lost_bell_does_not_wait_behind_those_that_were_rung_again(kit: Kit) -> None:
    queued(kit, "do", reconciler.RING_DESPITE_BACKLOG_MAX)
    kit.lose_bells()
    for _ in range(6):
        kit.clock.advance(seconds=kit.settings.ring_again_after_ms / 1_000)
        kit.run_job("reconciler", backlog=lambda group: 1_000)
    [lost] = queued(kit, "do", 1)
    kit.lose_bells()
    kit.send.rung.clear()
    kit.clock.advance(seconds=kit.settings.ring_again_after_ms / 1_000)
    kit.run_job("reconciler", backlog=lambda group: 1_000)
    assert [pairs for _, pairs in kit.send.rung] == [[(lost, 1)]]
    # Once the queue is empty, every bell that is not answered was lost.
    kit.clock.advance(seconds=kit.settings.ring_again_after_ms / 1_000)
    rung = kit.run_job("reconciler", backlog=lambda group: 0).rung
    assert rung == reconciler.RING_DESPITE_BACKLOG_MAX + 1


def test_where_fewer_messages_than_transactions_wait_some_bells_are_lost(datp: Kit) -> None:
    """Such as those that waited beside a message for so long that they were given up."""
    declared(datp)
    queued(datp, "do", 60)
    datp.lose_bells()
    datp.clock.advance(seconds=3_600)
    assert [rung_despite(datp, 1_000) for _ in range(4)] == [20, 20, 20, 0]
    # They have waited for an hour, and another one would pass until the next bell.
    datp.clock.advance(seconds=datp.settings.ring_again_after_ms / 1_000)
    assert rung_despite(datp, 60) == 0
    assert rung_despite(datp, 50) == 10
    assert rung_despite(datp, 1) == reconciler.RING_DESPITE_BACKLOG_MAX


def test_the_longest_without_a_bell_is_rung_first_in_whichever_shard(
    datp_servers: Servers, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reconciler, "RING_DESPITE_BACKLOG_MAX", 3)
    kit = declared(Kit(datp_servers, shards=4))
    waiting = []
    for _ in range(12):
        waiting += queued(kit, "do", 1)
        kit.clock.advance(seconds=1)
    assert len({tx_id[1:3] for tx_id in waiting}) > 1
    kit.lose_bells()
    kit.clock.advance(seconds=60)
    for run in range(4):
        kit.send.rung.clear()
        assert rung_despite(kit, 1) == 3
        rung = {tx for _, pairs in kit.send.rung for tx, _ in pairs}
        assert rung == set(waiting[3 * run : 3 * run + 3])
    kit.close()


def rung_despite(kit: Kit, messages: int) -> int:
    rung: int = kit.run_job("reconciler", backlog=lambda group: messages).rung
    return rung
