"""Calling scripts: a server that forgot them, errors, and JSON that nobody touches."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from redis.exceptions import ResponseError

from datp_tasks.live import scripts
from datp_tasks.live.live_types import Bell, Claimed, Held
from datp_tasks.live.scripts import (
    ScriptCall,
    ScriptCalls,
    ScriptRunner,
    one_by_one,
    script,
    script_names,
)
from datp_tasks.model.state import PASSED, Delta, delta_json
from datp_tasks.model.stop_request import StopRequest
from tests.support.live_states import HERE, NODE, OPENS, STATE_JSON, STEP, Stage

MONEY: Delta = {"k": "done", "out": {"amount": "0.10", "cents": 9007199254740993, "none": []}}


def test_a_server_that_forgot_its_scripts_is_told_them_again(stage: Stage) -> None:
    claims = [stage.claimed() for _ in range(4)]
    stage.redis.script_flush()
    before = stage.live.round_trips
    replies = stage.live.run(
        [
            stage.live.call_checkpoint(Held(claims[0].tx_id, claims[0].fence, (PASSED,))),
            stage.live.call_hand_over(
                Held(claims[1].tx_id, claims[1].fence), NODE, STATE_JSON, HERE
            ),
            stage.live.call_sleep(
                Held(claims[2].tx_id, claims[2].fence), NODE, STATE_JSON, HERE, sleep_ms=1_000
            ),
            stage.live.call_finish(
                Held(claims[3].tx_id, claims[3].fence), NODE, "success", STATE_JSON
            ),
            stage.live.call_checkpoint(Held(claims[0].tx_id, claims[0].fence, (PASSED,))),
        ]
    )
    assert [reply[0] for reply in replies] == ["OK"] * 5
    assert stage.live.round_trips == before + 2
    statuses = [stage.status(claim.tx_id) for claim in claims]
    assert statuses == ["running", "queued", "sleeping", "success"]
    # Each ran once: one entry follows the claim's, two follow that of the first.
    kinds = [[entry.kind for entry in stage.entries(claim.tx_id)] for claim in claims]
    assert kinds == [
        ["claim", "step", "step"],
        *(["claim", k] for k in ("queue", "sleep", "final")),
    ]
    assert stage.deltas(claims[0].tx_id) == [OPENS, delta_json(PASSED), delta_json(PASSED)]
    versions = [int(stage.version(claim.tx_id)) - stage.now_ms for claim in claims]
    assert versions == [2, 1, 1, 1]


def test_a_script_that_is_missing_among_others_runs_once_and_in_its_place(stage: Stage) -> None:
    first, second = stage.claimed(), stage.claimed()
    stage.redis.script_flush()
    stage.checkpoint(first)
    replies = stage.live.run(
        [
            stage.live.call_checkpoint(Held(first.tx_id, first.fence, (PASSED,))),
            stage.live.call_park(Held(second.tx_id, second.fence), NODE, STATE_JSON, "why"),
            stage.live.call_checkpoint(Held(first.tx_id, first.fence, (PASSED,))),
        ]
    )
    assert replies == [["OK"], ["OK", str(stage.now_ms + 1)], ["OK"]]
    versions = [int(stage.version(each.tx_id)) - stage.now_ms for each in (first, second)]
    assert versions == [3, 1]


def test_an_error_of_one_call_does_not_hide_and_does_not_stop_the_others(stage: Stage) -> None:
    good, bad = stage.claimed(), stage.claimed()
    broken = stage.live.call_checkpoint(Held(bad.tx_id, bad.fence), ("a name without a value",))
    before = stage.fields(bad.tx_id)
    with pytest.raises(ResponseError):
        stage.live.run(
            [broken, stage.live.call_checkpoint(Held(good.tx_id, good.fence, (PASSED,)))]
        )
    assert stage.version(good.tx_id) == str(stage.now_ms + 1)
    assert stage.fields(bad.tx_id) == before
    assert len(stage.entries(bad.tx_id)) == 1


def test_every_script_can_be_loaded_by_the_server(stage: Stage) -> None:
    for name in script_names():
        assert stage.redis.script_load(script(name).source) == script(name).sha


def test_json_goes_through_every_script_unchanged(stage: Stage) -> None:
    live = stage.live
    bell = stage.queued()
    tx_id = bell.tx_id
    claim = stage.claimed(bell)
    assert claim.fields["state"] == STATE_JSON
    live.run([live.call_checkpoint(Held(tx_id, claim.fence, (MONEY,)))])
    assert stage.deltas(tx_id)[-1] == delta_json(MONEY)
    live.report_progress(tx_id, claim.fence, STATE_JSON)
    live.set_switch(tx_id, "amount", "9007199254740993")
    stage.hand_over(claim)
    assert stage.fields(tx_id)["state"] == STATE_JSON
    claim = stage.claimed(Bell(tx_id, 2, "", "", "", ""))
    assert claim.fields["state"] == STATE_JSON
    live.take_over_many([(tx_id, claim.fence, claim.fence + 1)], NODE)
    claim = stage.claimed(Bell(tx_id, 3, "", "", "", ""))
    stage.sleep(claim, switch="kyc", sleep_ms=1_000)
    assert stage.fields(tx_id)["state"] == STATE_JSON
    live.confirm_archived_many([(tx_id, stage.version(tx_id), "")])
    live.wake_many([tx_id], only_due=False)
    claim = stage.claimed(Bell(tx_id, 4, "", "", "", ""))
    stage.finish(claim)
    fields = stage.fields(tx_id)
    assert fields["state"] == fields["progress"] == STATE_JSON
    assert fields["metadata"] == '{"n":9007199254740993}'
    assert fields["switch:amount"] == "1:9007199254740993"


def test_json_of_a_parked_and_of_a_cancelled_transaction_is_unchanged(stage: Stage) -> None:
    parked = stage.parked()
    assert stage.fields(parked.tx_id)["state"] == STATE_JSON
    seized = stage.live.stop(stage.queued().tx_id, StopRequest.cancel("enough"), NODE)
    assert isinstance(seized, Claimed)
    assert seized.fields["state"] == STATE_JSON


def test_large_states_and_many_fields_fit(stage: Stage) -> None:
    claim = stage.claimed()
    large = '{"stack":[],"data":"' + "x" * 1_000_000 + '"}'
    call = stage.live.call_checkpoint(
        Held(claim.tx_id, claim.fence, (PASSED,) * 500), tuple(str(n) for n in range(1_000))
    )
    assert stage.live.run([call]) == [["OK"]]
    assert stage.version(claim.tx_id) == str(stage.now_ms + 1)
    assert stage.deltas(claim.tx_id)[1:] == ["\n".join([delta_json(PASSED)] * 500)]
    assert len(stage.entries(claim.tx_id)[-1].deltas) == 500
    stage.hand_over(claim, json=large)
    fields = stage.fields(claim.tx_id)
    assert fields["state"] == large
    assert fields["998"] == "999"


def test_a_vector_of_different_shards_is_claimed_in_one_round_trip(stage: Stage) -> None:
    bells = [stage.queued(shard=f"{n:02d}") for n in range(16)]
    before = stage.live.round_trips
    claims = stage.live.claim_many([(b.tx_id, b.sequence) for b in bells], NODE, step_type=STEP)
    assert all(isinstance(claim, Claimed) for claim in claims)
    assert stage.live.round_trips == before + 1
    assert sorted(stage.live.running_on(NODE)) == sorted(bell.tx_id for bell in bells)


def test_a_vector_of_one_shard_is_one_call_and_one_entry_and_each_has_its_answer(
    stage: Stage,
) -> None:
    live, size = stage.live, 10
    runner: ScriptRunner = vars(live)["_runner"]
    journal = live.keys.in_shard("05", "journalX")
    bells = [stage.queued(shard="05") for _ in range(size)]
    pairs = [(bell.tx_id, bell.sequence) for bell in bells]
    costs = []

    def run(calls: Sequence[ScriptCall | ScriptCalls]) -> list[str]:
        before = runner.calls, stage.redis.xlen(journal)
        replies = live.run(calls)
        costs.append((runner.calls - before[0], stage.redis.xlen(journal) - before[1]))
        return [reply[0] for _, reply in one_by_one(calls, replies)]

    rung = [(tx_id, str(number), "") for tx_id, number in pairs]
    calls = live.calls_claim([*rung, rung[0]], NODE, STEP, OPENS)
    assert run([calls]) == ["OK"] * size + ["NOT_QUEUED"]
    fences = [int(fields["fence"]) for fields in live.fields_many([tx for tx, _ in pairs])]
    held = [Held(tx, fence, (PASSED,)) for (tx, _), fence in zip(pairs, fences, strict=True)]
    stale = Held(held[3].tx_id, held[3].fence - 1, (PASSED,))
    held[3] = stale
    wanted = ["STALE" if each is stale else "OK" for each in held]
    assert run([live.call_checkpoint(each) for each in held]) == wanted
    assert run([live.call_finish(each, NODE, "success", STATE_JSON) for each in held]) == wanted
    assert costs == [(1, 1)] * 3
    statuses = [stage.status(tx_id) for tx_id, _ in pairs]
    assert statuses == ["running" if word == "STALE" else "success" for word in wanted]


def test_a_call_takes_no_more_transactions_than_a_limit_of_characters_allows(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    live = stage.live
    runner: ScriptRunner = vars(live)["_runner"]
    claims = [stage.claimed(stage.queued(shard="05")) for _ in range(5)]
    long = ({"k": "done", "out": {"text": "x" * 1_000}},)
    calls = [live.call_checkpoint(Held(each.tx_id, each.fence, long)) for each in claims]
    monkeypatch.setattr(scripts, "CALL_BYTES_MAX", 2_000)
    before = runner.calls
    assert [reply[0] for reply in live.run(calls)] == ["OK"] * 5
    assert runner.calls - before == 3
