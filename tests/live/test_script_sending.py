"""How calls are sent: one write, then one reply for each call."""

from __future__ import annotations

import logging
from collections.abc import Sequence

import pytest
from redis.exceptions import ResponseError

from datp_tasks.live import scripts
from datp_tasks.live.keys import CALL_TRANSACTIONS_MAX
from datp_tasks.live.live_types import Claimed, Held
from datp_tasks.live.scripts import ScriptRunner
from datp_tasks.model.state import PASSED, delta_json
from tests.support.live_states import NODE, STEP, Stage, interrupted_read


def test_a_call_that_is_interrupted_leaves_no_reply_for_the_next_one(stage: Stage) -> None:
    stage.claimed()
    bells = [stage.queued(shard=shard) for shard in ("01", "02", "03")]
    pairs = [(bell.tx_id, bell.sequence) for bell in bells]
    with interrupted_read(2):
        stage.live.claim_many(pairs, NODE)
    fresh = stage.queued()
    claim = stage.live.claim_many([(fresh.tx_id, fresh.sequence)], NODE)[0]
    assert isinstance(claim, Claimed)
    assert stage.fields(fresh.tx_id)["fence"] == str(claim.fence)
    assert stage.redis.ping()


def test_an_error_of_one_call_does_not_shift_the_replies_of_the_others(stage: Stage) -> None:
    bells = [stage.queued() for _ in range(3)]
    live = stage.live
    broken = live.keys.of_tx(bells[1].tx_id, "broken")
    queues = [live.keys.of_tx(bell.tx_id, "queuedZ") for bell in bells]
    queues[1] = broken
    live.ring_again_many([bell.tx_id for bell in bells])
    stage.redis.set(broken, "a string is no zset")
    calls: list[scripts.ScriptCall] = [
        scripts.call(
            scripts.script("ring_again"), (live.keys.state(bell.tx_id), queue), ("", bell.tx_id)
        )
        for bell, queue in zip(bells, queues, strict=True)
    ]
    vectors = scripts.vectors_of(calls, [None] * len(calls))
    replies = scripts.ScriptRunner(stage.redis)._send(vectors)
    assert [isinstance(reply, Exception) for reply in replies] == [False, True, False]
    assert (replies[0][0], replies[2][0]) == ("OK", "OK")
    stage.redis.delete(broken)


def checkpoints(stage: Stage, claims: Sequence[Claimed], *fields: str) -> scripts.ScriptCalls:
    own = [
        (each.tx_id, str(each.fence), f'{{"k":"done","out":{{"n":{n}}}}}', *fields)
        for n, each in enumerate(claims)
    ]
    return stage.live.calls_checkpoint(own, "t/next", "p/1", snapshot=False)


def know_scripts(stage: Stage, *shards: str) -> None:
    """Let the servers of these shards get to know what is called later: then calls are counted."""
    for shard in shards:
        claim = stage.claimed(stage.queued(shard=shard))
        stage.checkpoint(claim)
        stage.parked(stage.claimed(stage.queued(shard=shard)))
        stage.finish(claim)


def lines_written(stage: Stage, claims: Sequence[Claimed]) -> list[str]:
    return [stage.deltas(each.tx_id)[-1] for each in claims]


def test_calls_of_many_shards_are_answered_in_the_order_in_which_they_were_asked(
    stage: Stage,
) -> None:
    claims = [stage.claimed(stage.queued(shard=f"{n % 3:02d}")) for n in range(9)]
    stale = claims[6] = claims[6]._replace(fence=claims[6].fence - 1)
    know_scripts(stage, "00", "01", "02")
    runner: ScriptRunner = vars(stage.live)["_runner"]
    before = runner.round_trips, runner.calls
    (replies,) = stage.live.run([checkpoints(stage, claims)])
    assert [reply[0] for reply in replies] == ["STALE" if c is stale else "OK" for c in claims]
    assert (runner.round_trips - before[0], runner.calls - before[1]) == (1, 3)
    moved = [each for each in claims if each is not stale]
    wanted = [f'{{"k":"done","out":{{"n":{n}}}}}' for n in range(9) if n != 6]
    assert lines_written(stage, moved) == wanted


def test_calls_of_many_go_with_other_calls_in_one_round_trip(stage: Stage) -> None:
    know_scripts(stage, "07")
    claims = [stage.claimed() for _ in range(3)]
    parked, ended = stage.claimed(), stage.claimed()
    park = stage.live.call_park(Held(parked.tx_id, parked.fence), NODE, "{}", "a doubt")
    finish = stage.live.call_finish(Held(ended.tx_id, ended.fence), NODE, "success", "{}")
    before = stage.live.round_trips
    replies = stage.live.run([park, checkpoints(stage, claims), finish])
    assert stage.live.round_trips == before + 1
    assert [replies[0][0], replies[2][0]] == ["OK", "OK"]
    assert replies[1] == [["OK"]] * 3
    assert stage.status(parked.tx_id) == "in-doubt"
    assert stage.status(ended.tx_id) == "success"


def test_more_than_a_call_may_take_are_moved_by_several(stage: Stage) -> None:
    count = CALL_TRANSACTIONS_MAX + 1
    know_scripts(stage, "05")
    bells = [stage.queued(shard="05") for _ in range(count)]
    pairs = [(bell.tx_id, bell.sequence) for bell in bells]
    runner: ScriptRunner = vars(stage.live)["_runner"]
    before = runner.round_trips, runner.calls
    claims = stage.live.claim_many(pairs, NODE, step_type=STEP)
    assert (runner.round_trips - before[0], runner.calls - before[1]) == (1, 2)
    assert [each.tx_id for each in claims if isinstance(each, Claimed)] == [tx for tx, _ in pairs]


def test_long_arguments_of_many_are_moved_by_several_calls(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    know_scripts(stage, "05")
    claims = [stage.claimed(stage.queued(shard="05")) for _ in range(5)]
    monkeypatch.setattr(scripts, "CALL_BYTES_MAX", 2_000)
    runner: ScriptRunner = vars(stage.live)["_runner"]
    before = runner.calls
    (replies,) = stage.live.run([checkpoints(stage, claims, "note", "x" * 1_000)])
    assert replies == [["OK"]] * 5
    assert runner.calls - before == 3


def test_an_error_of_one_of_many_is_raised_and_the_others_are_moved(stage: Stage) -> None:
    claims = [stage.claimed(stage.queued(shard="05")) for _ in range(3)]
    own: list[tuple[str, ...]] = [
        (each.tx_id, str(each.fence), delta_json(PASSED)) for each in claims
    ]
    own[1] += ("a name without a value",)
    calls = stage.live.calls_checkpoint(own, "t/next", "p/1", snapshot=False)
    with pytest.raises(ResponseError, match="wrong number of arguments"):
        stage.live.run([calls])
    places = [stage.fields(each.tx_id)["place"] for each in claims]
    assert [place == "p/1" for place in places] == [True, False, True]


def test_each_of_many_has_a_line_in_the_log_with_its_fence(
    stage: Stage, caplog: pytest.LogCaptureFixture
) -> None:
    claims = [stage.claimed(stage.queued(shard=f"{n % 2:02d}")) for n in range(4)]
    stale = claims[1] = claims[1]._replace(fence=claims[1].fence - 1)
    with caplog.at_level(logging.DEBUG, "datp.transition"):
        stage.live.run([checkpoints(stage, claims)])
    said = {
        (vars(line)["tx"], vars(line)["fence"], vars(line)["answer"]) for line in caplog.records
    }
    assert said == {(c.tx_id, c.fence, "STALE" if c is stale else "OK") for c in claims}


def test_nothing_is_sent_for_none(stage: Stage) -> None:
    before = stage.live.round_trips
    assert stage.live.run([checkpoints(stage, [])]) == [[]]
    assert stage.live.claim_many([], NODE) == []
    assert stage.live.round_trips == before
