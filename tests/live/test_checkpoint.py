"""checkpoint.lua: what a worker writes between two steps."""

from __future__ import annotations

from datp_tasks.live.live_types import Claimed, Held
from datp_tasks.live.scripts import ScriptCalls
from datp_tasks.model.journal import Entry
from datp_tasks.model.state import done
from datp_tasks.model.stop_request import StopRequest
from tests.support.live_states import NODE, OPENS, OTHER_NODE, Stage


def test_a_checkpoint_appends_its_deltas_under_one_new_version(stage: Stage) -> None:
    claim = stage.claimed()
    deltas = (done({"n": 1}, undoable=True), done({"n": 9007199254740993}, undoable=False))
    call = stage.live.call_checkpoint(Held(claim.tx_id, claim.fence, deltas), ("place", "p/2"))
    version = stage.now_ms + 1
    assert stage.live.run([call]) == [["OK"]]
    lines = '{"k":"done","out":{"n":1},"undo":1}\n{"k":"done","out":{"n":9007199254740993}}'
    assert stage.deltas(claim.tx_id) == [OPENS, lines]
    fields = stage.fields(claim.tx_id)
    assert fields["place"] == "p/2"
    assert (fields["version"], fields["jsonVersion"]) == (str(version), "0")
    entry = Entry(version, version - 1, claim.fence, "step", lines)
    assert stage.entries(claim.tx_id)[1:] == [entry]
    assert stage.score(claim.tx_id, "toArchiveZ") is None


def going_on(stage: Stage, claim: Claimed, *, place: str) -> ScriptCalls:
    own = (claim.tx_id, str(claim.fence), "")
    return stage.live.calls_checkpoint([own], "t/next", place, snapshot=False)


def test_a_checkpoint_says_where_its_transaction_goes_on(stage: Stage) -> None:
    claim = stage.claimed()
    held = Held(claim.tx_id, claim.fence)
    stage.live.run([going_on(stage, claim, place="p/1")])
    fields = stage.fields(claim.tx_id)
    assert (fields["stepType"], fields["place"]) == ("t/next", "p/1")
    stage.live.run([stage.live.call_checkpoint(held, ("begun", "1"))])
    fields = stage.fields(claim.tx_id)
    assert (fields["stepType"], fields["place"]) == ("t/next", "p/1")


def test_checkpoints_of_one_call_go_on_at_different_places(stage: Stage) -> None:
    first, second = stage.claimed(), stage.claimed()
    stage.live.run([going_on(stage, first, place="p/1"), going_on(stage, second, place="q/1")])
    assert stage.fields(first.tx_id)["place"] == "p/1"
    assert stage.fields(second.tx_id)["place"] == "q/1"


def test_a_checkpoint_without_deltas_is_a_version_too_and_adds_no_delta(stage: Stage) -> None:
    claim = stage.claimed()
    before = stage.fields(claim.tx_id)
    call = stage.live.call_checkpoint(Held(claim.tx_id, claim.fence))
    version = stage.now_ms + 1
    assert stage.live.run([call]) == [["OK"]]
    assert stage.fields(claim.tx_id) == before | {"version": str(version)}
    assert stage.deltas(claim.tx_id) == [OPENS]
    assert stage.entries(claim.tx_id)[1:] == [Entry(version, version - 1, claim.fence, "step", "")]


def test_a_checkpoint_tells_about_a_cancel_and_about_switches(stage: Stage) -> None:
    claim = stage.claimed()
    stage.live.set_switch(claim.tx_id, "kyc", "true")
    stage.live.set_switch(claim.tx_id, "limit", "7")
    stage.live.stop(claim.tx_id, StopRequest.cancel("enough"), OTHER_NODE)
    assert stage.checkpoint(claim) == ["OK", "cancelled:enough", "2"]


def test_a_checkpoint_tells_about_switches_alone(stage: Stage) -> None:
    claim = stage.claimed()
    stage.live.set_switch(claim.tx_id, "kyc", "true")
    assert stage.checkpoint(claim) == ["OK", "", "1"]


def test_a_checkpoint_tells_about_a_cancel_alone(stage: Stage) -> None:
    claim = stage.claimed()
    stage.live.stop(claim.tx_id, StopRequest.cancel("enough"), OTHER_NODE)
    assert stage.checkpoint(claim) == ["OK", "cancelled:enough", "0"]


def test_a_vector_of_checkpoints_tells_each_its_own_news(stage: Stage) -> None:
    claims = [stage.claimed() for _ in range(3)]
    stage.live.stop(claims[1].tx_id, StopRequest.cancel("enough"), OTHER_NODE)
    calls = [stage.live.call_checkpoint(Held(each.tx_id, each.fence)) for each in claims]
    assert stage.live.run(calls) == [["OK"], ["OK", "cancelled:enough", "0"], ["OK"]]


def test_a_checkpoint_leaves_the_transaction_with_its_node(stage: Stage) -> None:
    claim = stage.claimed()
    stage.checkpoint(claim)
    assert stage.status(claim.tx_id) == "running"
    assert stage.live.running_on(NODE) == [claim.tx_id]


def test_neighbours_in_a_vector_have_versions_of_their_own(stage: Stage) -> None:
    claims = [stage.claimed() for _ in range(3)]
    for _ in range(4):
        stage.checkpoint(claims[1])
    before = [int(stage.version(each.tx_id)) for each in claims]
    assert before[0] == before[2] < before[1]
    own = [(each.tx_id, str(each.fence), "") for each in claims]
    stage.live.run([stage.live.calls_checkpoint(own, "t/next", "p/1", snapshot=False)])
    after = [int(stage.version(each.tx_id)) for each in claims]
    assert after == [version + 1 for version in before]
    told = [stage.entries(each.tx_id)[-1] for each in claims]
    assert [(each.version, each.before) for each in told] == list(zip(after, before, strict=True))
