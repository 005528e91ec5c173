"""Transactions that have left Redis: whoever needs one brings it back from SQL."""

from __future__ import annotations

import json
from typing import Any

import pytest

from datp_tasks import Pipeline, Request
from datp_tasks.errors import TransactionFinal
from datp_tasks.failpoints import SimulatedCrash
from datp_tasks.jobs.sleeper import Result as Woken
from datp_tasks.ledger.batch_types import Finished
from datp_tasks.live import store
from datp_tasks.model.ledger_batch import BatchState
from datp_tasks.model.status import Status
from datp_tasks.operator.selection import Where
from datp_tasks.record.alerts import Alerts
from datp_tasks.testing import Kit
from datp_tasks.testing.servers import Servers
from datp_tasks.transactions.rebuild_lost import LOST
from datp_tasks.transactions.tell_waiting import tell_waiting
from tests.support.archive_world import HOUR_S, World


@pytest.fixture
def quiet(sound: World) -> World:
    """A world whose journals must be right at the end."""
    return sound


# Who brings them back, and who does not.


def test_a_list_tells_the_status_of_those_that_left_and_leaves_them_where_they_are(
    datp: Kit, quiet: World
) -> None:
    gone = [quiet.asleep_and_gone() for _ in range(3)]
    here = datp.submit("wait", {})
    ended = datp.submit("quick", {})
    asleep = {each.tx_id for each in datp.operator.choose(Where(status=Status.SLEEPING))}
    assert asleep == {*gone, here}
    many = datp.client.status_many([*gone, here, ended])
    assert [each and each.status for each in many] == [Status.SLEEPING] * 4 + [Status.SUCCESS]
    assert datp.connections.live.exist_many([*gone, here]) == [False] * 3 + [True]


def test_a_list_tells_nothing_new_of_one_that_never_reached_redis(datp: Kit, quiet: World) -> None:
    datp.crash_at("submit.after_accept")
    with pytest.raises(SimulatedCrash):
        datp.submit("quick", {})
    assert [each.status for each in datp.operator.choose(Where())] == [Status.QUEUED]
    datp.recover()


def test_a_look_brings_one_back_for_a_while_and_changes_nothing(datp: Kit, quiet: World) -> None:
    tx_id = quiet.asleep_and_gone("wait")
    version = quiet.archived_version(tx_id)
    summary = datp.status(tx_id)
    assert summary.status is Status.SLEEPING
    assert int(quiet.fields(tx_id)["version"]) == version
    assert quiet.ttl_s(tx_id) == pytest.approx(store.SLEEPING_TTL_S, abs=5)
    assert quiet.due() == set()
    assert quiet.backlog() == 0


def test_each_look_keeps_it_for_as_long_again_and_a_list_does_not(datp: Kit, quiet: World) -> None:
    tx_id = quiet.asleep_and_gone("wait")
    key = datp.connections.live.keys.state(tx_id)
    redis = datp.connections.redis
    for look, stays in ((datp.client.status, True), (datp.client.status_many, False)):
        assert datp.status(tx_id).status is Status.SLEEPING
        redis.pexpire(key, 5_000)
        look(tx_id if stays else [tx_id])  # type: ignore[arg-type]
        assert (redis.pttl(key) > 6_000) is stays
    # One that must stay gets no time to live by being read.
    datp.client.set_switch(tx_id, "other", 1)
    assert redis.pttl(key) == -1
    datp.status(tx_id)
    assert redis.pttl(key) == -1


def test_progress_and_external_id_are_as_they_were(datp: Kit, quiet: World) -> None:
    @datp.step("t/report")
    def report(ctx: Any, data: dict[str, Any]) -> None:
        ctx.progress({"half": "way"})

    datp.use(Pipeline("r").step("t/report").step("t/rest").build())
    tx_id = quiet.asleep_and_gone("r", external_id="o-1", metadata={"m": 1})
    before = {"externalId": "o-1", "metadata": '{"m":1}', "progress": '{"half":"way"}'}
    assert datp.status(tx_id).progress == {"half": "way"}
    assert {name: quiet.fields(tx_id)[name] for name in before} == before


def test_the_switch_that_it_waits_for_wakes_it(datp: Kit, quiet: World) -> None:
    tx_id = quiet.asleep_and_gone("wait")
    assert datp.client.set_switch(tx_id, "go", "now")
    assert datp.status(tx_id).output == {"go": "now", "booked": 1}


def test_another_switch_is_kept_and_has_it_archived_again(datp: Kit, quiet: World) -> None:
    tx_id = quiet.asleep_and_gone("wait")
    before = quiet.archived_version(tx_id) or 0
    assert not datp.client.set_switch(tx_id, "other", 1)
    # Changed: it stays until SQL has it.
    assert quiet.ttl_s(tx_id) is None
    assert quiet.due() == {tx_id}
    quiet.archive()
    assert (quiet.archived_version(tx_id) or 0) > before
    quiet.evict(tx_id)
    datp.status(tx_id)
    assert quiet.fields(tx_id)["switch:other"] == "1:1"
    assert datp.client.set_switch(tx_id, "go", True)
    assert datp.status(tx_id).status is Status.SUCCESS


def test_it_can_be_woken(datp: Kit, quiet: World) -> None:
    tx_id = quiet.asleep_and_gone()
    assert datp.client.wake(tx_id)
    assert datp.status(tx_id).output == {"booked": 2}


def test_one_in_which_nothing_had_begun_can_be_cancelled(datp: Kit, quiet: World) -> None:
    """A worker had it, and it slept before anything was opened."""
    tx_id = quiet.queued("rest", expires_in_s=HOUR_S)
    datp.clock.advance(seconds=HOUR_S + 1)
    # It has expired, so a worker only puts it to sleep until the timeout handler has seen it.
    quiet.run_one_hop()
    assert quiet.status(tx_id) == "sleeping"
    assert "begun" not in quiet.fields(tx_id)
    quiet.archive()
    live = datp.connections.live
    live.redis.delete(live.keys.state(tx_id))
    assert datp.client.cancel(tx_id, "no need").status is Status.CANCELLED
    assert quiet.did == []


def test_one_that_has_begun_is_rolled_back_when_cancelled(datp: Kit, quiet: World) -> None:
    tx_id = quiet.asleep_and_gone()
    datp.client.cancel(tx_id, "enough")
    assert datp.status(tx_id).status is Status.CANCELLED
    assert quiet.did == [("book", tx_id), ("unbook", tx_id)]


def test_it_expires_and_is_rolled_back(datp: Kit, quiet: World) -> None:
    tx_id = quiet.asleep_and_gone(data={"seconds": 10 * HOUR_S}, expires_in_s=HOUR_S)
    datp.clock.advance(seconds=HOUR_S + 1)
    datp.run_job("timeout_handler")
    assert datp.status(tx_id).status is Status.EXPIRED
    assert quiet.did == [("book", tx_id), ("unbook", tx_id)]


def test_the_end_of_a_batch_wakes_it(datp: Kit, quiet: World) -> None:
    tx_id = quiet.asleep_and_gone("wait")
    connections = datp.connections
    ended = Finished(
        service_id="s", batch_id="b", state=BatchState.COMMITTED, tx_id=tx_id, switch="go"
    )
    tell_waiting(connections.live, connections.bells.ringer, connections.recovery.restorer, [ended])
    assert datp.status(tx_id).output == {"go": "COMMITTED", "booked": 1}


def test_it_wakes_when_its_time_has_come(datp: Kit, quiet: World) -> None:
    tx_id = quiet.asleep_and_gone()
    datp.clock.advance(seconds=HOUR_S - 1)
    assert datp.run_job("sleeper") == Woken(woken=0, resurrected=0)
    datp.clock.advance(seconds=1)
    assert datp.run_job("sleeper") == Woken(woken=1, resurrected=1)
    assert datp.status(tx_id).output == {"booked": 2}


def test_two_thousand_that_left_wake_in_a_few_round_trips(datp_servers: Servers) -> None:
    kit = Kit(datp_servers)
    world = World(kit)
    kit.lose_bells()
    kit.client.submit_many([Request(pipeline="rest", input={}) for _ in range(2_000)])
    pairs = [pair for _, rung in kit.send.rung for pair in rung]
    kit.celery.tasks["datp.step.t/book"].apply_async(args=(pairs,))
    while world.archive().copied:
        pass
    tx_ids = [tx for tx, _ in pairs]
    live = kit.connections.live
    live.redis.delete(*(live.keys.state(tx) for tx in tx_ids))
    kit.clock.advance(seconds=HOUR_S)
    before = live.round_trips
    result = kit.run_job("sleeper")
    assert result == Woken(woken=2_000, resurrected=2_000)
    assert live.round_trips - before < 40
    assert live.sizes()["queuedZ"] == 2_000
    kit.close()


# Races.


def test_one_that_another_process_restored_and_changed_stays_as_it_is(
    datp: Kit, quiet: World
) -> None:
    tx_id = quiet.asleep_and_gone("wait")
    other = datp.another()
    quiet.at("resurrect.after_load", lambda: other.client.set_switch(tx_id, "other", 7))
    datp.client.set_switch(tx_id, "mine", 8)
    fields = quiet.fields(tx_id)
    assert (fields["switch:other"], fields["switch:mine"]) == ("1:7", "2:8")
    other.close()


def test_one_that_another_process_woke_meanwhile_is_not_put_to_sleep_again(
    datp: Kit, quiet: World
) -> None:
    tx_id = quiet.asleep_and_gone()
    other = datp.another()
    other.lose_bells()
    quiet.at("resurrect.after_load", lambda: other.client.wake(tx_id))
    assert datp.status(tx_id).status is Status.QUEUED
    assert quiet.status(tx_id) == "queued"
    other.close()
    assert quiet.ends(tx_id) is Status.SUCCESS
    assert quiet.did.count(("book", tx_id)) == 2


def test_one_that_woke_ended_and_left_meanwhile_does_not_come_back_to_life(
    datp: Kit, quiet: World
) -> None:
    """The paused process read it asleep; when it goes on, SQL has long ended it."""
    tx_id = quiet.asleep_and_gone()
    other = datp.another()

    def live_on() -> None:
        other.client.wake(tx_id)
        assert other.status(tx_id).status is Status.SUCCESS
        datp.clock.advance(seconds=datp.settings.delay_before_archiving_s)
        other.run_job("archiver")
        quiet.evict(tx_id)

    quiet.at("resurrect.after_load", live_on)
    with pytest.raises(TransactionFinal):
        datp.client.set_switch(tx_id, "x", 1)
    assert quiet.status(tx_id) in (None, "success")
    datp.advance(days=1)
    assert quiet.did.count(("book", tx_id)) == 2
    other.close()


def test_one_that_woke_and_slept_again_meanwhile_does_not_fall_back_into_its_first_sleep(
    datp: Kit, quiet: World
) -> None:
    """The process was paused for so long that the second sleep has left memory as well."""
    datp.use(Pipeline("naps").step("t/rest").step("t/book").step("t/rest").build())
    tx_id = quiet.asleep_and_gone("naps")
    other = datp.another()

    def sleep_again() -> None:
        datp.clock.advance(seconds=1)
        other.client.wake(tx_id)
        assert quiet.status(tx_id) == "sleeping"
        other.run_job("archiver")
        datp.clock.advance(seconds=store.SLEEPING_TTL_S)
        quiet.evict(tx_id)

    quiet.at("resurrect.after_load", sleep_again)
    assert datp.status(tx_id).status is Status.SLEEPING
    assert int(quiet.fields(tx_id)["version"]) == quiet.archived_version(tx_id)
    assert quiet.ends(tx_id) is Status.SUCCESS
    assert quiet.did == [("book", tx_id)]
    other.close()


def test_a_change_that_came_and_left_while_the_reader_was_paused_is_not_undone(
    datp: Kit, quiet: World
) -> None:
    tx_id = quiet.asleep_and_gone("wait")
    other = datp.another()

    def change() -> None:
        other.client.set_switch(tx_id, "other", 7)
        other.run_job("archiver")
        datp.clock.advance(seconds=store.SLEEPING_TTL_S)
        quiet.evict(tx_id)

    quiet.at("resurrect.after_load", change)
    datp.client.set_switch(tx_id, "mine", 8)
    fields = quiet.fields(tx_id)
    assert (fields["switch:other"], fields["switch:mine"]) == ("1:7", "2:8")
    other.close()


def test_one_that_comes_back_under_a_fence_older_than_that_of_sql_can_end(
    datp: Kit, quiet: World
) -> None:
    """SQL refuses the ending of a claim that is older, and its clock may have been ahead."""
    tx_id = quiet.asleep_and_gone()
    ahead_ms = datp.connections.live.server_now_ms() + int(5 * HOUR_S * 1_000)
    datp.connections.record.raise_fences([(tx_id, ahead_ms)])
    datp.advance(seconds=HOUR_S)
    assert datp.status(tx_id).status is Status.SUCCESS
    assert quiet.did.count(("book", tx_id)) == 2


# What SQL has lost.


def test_without_an_archived_state_the_journal_is_enough(datp: Kit, quiet: World) -> None:
    tx_id = quiet.asleep_and_gone("wait")
    datp.client.set_switch(tx_id, "other", 1)
    quiet.archive()
    quiet.evict(tx_id)
    quiet.sql("DELETE FROM tx_state WHERE tx_id = :tx", tx=tx_id)
    assert datp.client.set_switch(tx_id, "go", 1)
    assert datp.status(tx_id).output == {"go": 1, "booked": 1}
    assert quiet.archived(tx_id) is None


def test_a_copy_older_than_the_journal_is_brought_up_to_date(datp: Kit, quiet: World) -> None:
    tx_id = datp.submit("wait", {})
    quiet.archive()
    old = quiet.archived(tx_id)
    assert old is not None
    datp.client.set_switch(tx_id, "other", 1)
    quiet.archive()
    quiet.evict(tx_id)
    quiet.sql(
        "UPDATE tx_state SET version = :v, fields = CAST(:f AS json) WHERE tx_id = :tx",
        v=int(old["version"]),
        f=json.dumps(old),
        tx=tx_id,
    )
    datp.status(tx_id)
    assert quiet.fields(tx_id)["switch:other"] == "1:1"


@pytest.mark.parametrize("decision", ["redo", "fail", "done"])
def test_one_that_neither_store_knows_any_more_is_parked_and_can_be_resolved(
    datp: Kit, world: World, decision: Any
) -> None:
    tx_id = world.asleep_and_gone()
    world.sql("DELETE FROM tx_state WHERE tx_id = :tx", tx=tx_id)
    world.sql("DELETE FROM tx_journal WHERE tx_id = :tx", tx=tx_id)
    datp.clock.advance(seconds=HOUR_S)
    datp.run_job("sleeper")
    summary = datp.status(tx_id)
    assert summary.status is Status.IN_DOUBT
    assert "neither the archive nor the journal knows of it" in (summary.note or "")
    alerts = Alerts(datp.connections.engine, datp.clock)
    assert [each.subject for each in alerts.open_alerts(LOST)] == [tx_id]
    datp.advance(days=1)
    assert datp.status(tx_id).status is Status.IN_DOUBT
    assert world.times("book", tx_id) == 1
    datp.operator.resolve(tx_id, decision, reason="looked at the bank's books")
    end = datp.finish(tx_id)
    assert end.status is (Status.FAILED if decision == "fail" else Status.SUCCESS)
    assert world.times("book", tx_id) == {"redo": 3, "done": 2, "fail": 1}[decision]
    assert alerts.open_alerts(LOST) == []
