"""How calls are sent: one write, then one reply for each call."""

from __future__ import annotations

from datp_tasks.live import scripts
from datp_tasks.live.live_types import Claimed
from tests.support.live_states import NODE, Stage, interrupted_read


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
    replies = scripts.ScriptRunner(stage.redis)._send(scripts._vectors(calls))
    assert [isinstance(reply, Exception) for reply in replies] == [False, True, False]
    assert (replies[0][0], replies[2][0]) == ("OK", "OK")
    stage.redis.delete(broken)
