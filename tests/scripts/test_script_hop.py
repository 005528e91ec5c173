"""checkpoint.lua, hand_over.lua, park.lua and report_progress.lua: what a worker writes."""

from __future__ import annotations

from datp_tasks.live.types import Held
from datp_tasks.model.journal import Entry
from datp_tasks.model.state import done
from datp_tasks.model.stop_request import StopRequest
from tests.scripts.live_states import HERE, NODE, OPENS, OTHER_NODE, THERE, Stage


def test_a_checkpoint_appends_its_deltas_under_one_new_version(stage: Stage) -> None:
    claim = stage.claimed()
    deltas = (done({"n": 1}, undoable=True), done({"n": 9007199254740993}, undoable=False))
    call = stage.live.call_checkpoint(Held(claim.tx_id, claim.fence, deltas), ("place", "p/2"))
    version = stage.now_ms + 1
    assert stage.live.run([call]) == [["OK", str(version), "", "0"]]
    lines = '{"k":"done","out":{"n":1},"undo":1}\n{"k":"done","out":{"n":9007199254740993}}'
    assert stage.deltas(claim.tx_id) == [OPENS, lines]
    fields = stage.fields(claim.tx_id)
    assert fields["place"] == "p/2"
    assert (fields["version"], fields["jsonVersion"]) == (str(version), "0")
    entry = Entry(version, version - 1, claim.fence, "step", lines)
    assert stage.entries(claim.tx_id)[1:] == [entry]
    assert stage.score(claim.tx_id, "toArchiveZ") is None


def test_a_checkpoint_without_deltas_is_a_version_too_and_adds_no_delta(stage: Stage) -> None:
    claim = stage.claimed()
    before = stage.fields(claim.tx_id)
    call = stage.live.call_checkpoint(Held(claim.tx_id, claim.fence))
    version = stage.now_ms + 1
    assert stage.live.run([call]) == [["OK", str(version), "", "0"]]
    assert stage.fields(claim.tx_id) == before | {"version": str(version)}
    assert stage.deltas(claim.tx_id) == [OPENS]
    assert stage.entries(claim.tx_id)[1:] == [Entry(version, version - 1, claim.fence, "step", "")]


def test_a_checkpoint_tells_about_a_cancel_and_about_switches(stage: Stage) -> None:
    claim = stage.claimed()
    stage.live.set_switch(claim.tx_id, "kyc", "true")
    stage.live.set_switch(claim.tx_id, "limit", "7")
    stage.live.stop(claim.tx_id, StopRequest.cancel("enough"), OTHER_NODE)
    assert stage.checkpoint(claim)[2:] == ["cancelled:enough", "2"]


def test_a_checkpoint_leaves_the_transaction_with_its_node(stage: Stage) -> None:
    claim = stage.claimed()
    stage.checkpoint(claim)
    assert stage.status(claim.tx_id) == "running"
    assert stage.live.running_on(NODE) == [claim.tx_id]


def test_a_transaction_that_is_handed_over_waits_for_its_next_bell(stage: Stage) -> None:
    claim = stage.claimed()
    stage.clock.advance(seconds=1)
    assert stage.hand_over(claim, to=THERE, json='{"new":1}') == ["OK", 2, str(stage.now_ms)]
    fields = stage.fields(claim.tx_id)
    assert fields["status"] == "queued"
    assert (fields["group"], fields["stepType"]) == ("payments", "t/pay")
    assert (fields["place"], fields["priority"]) == ("p/1", "out")
    assert "node" not in fields
    assert stage.score(claim.tx_id, "queuedZ") == stage.now_ms
    assert stage.score(claim.tx_id, "processingZ") is None
    assert stage.live.running_on(NODE) == []


def test_a_full_json_replaces_the_deltas_that_led_to_it(stage: Stage) -> None:
    claim = stage.claimed()
    stage.checkpoint(claim)
    stage.hand_over(claim, json='{"new":1}')
    fields = stage.fields(claim.tx_id)
    assert stage.deltas(claim.tx_id) == []
    assert fields["state"] == '{"new":1}'
    assert fields["version"] == fields["jsonVersion"] == str(stage.now_ms + 2)


def test_handing_over_twice_changes_nothing_more(stage: Stage) -> None:
    claim, _ = stage.handed_over()
    with stage.nothing_changes():
        assert stage.hand_over(claim) == ["STALE", "queued"]


def test_a_parked_transaction_waits_for_somebody_to_decide(stage: Stage) -> None:
    claim = stage.claimed()
    assert stage.park(claim, json='{"doubt":1}') == ["OK", str(stage.now_ms + 1)]
    fields = stage.fields(claim.tx_id)
    assert (fields["status"], fields["problem"]) == ("in-doubt", "who knows")
    assert fields["state"] == '{"doubt":1}'
    assert stage.score(claim.tx_id, "exceptionZ") == stage.now_ms
    assert stage.score(claim.tx_id, "toArchiveZ") == stage.now_ms
    assert stage.live.running_on(NODE) == []


def test_parking_twice_changes_nothing_more(stage: Stage) -> None:
    claim = stage.parked()
    with stage.nothing_changes():
        assert stage.park(claim) == ["STALE", "in-doubt"]


def test_parking_is_told_to_whoever_waits(stage: Stage) -> None:
    with stage.news() as news:
        claim = stage.parked()
        assert news() == f"parked:{claim.tx_id}:in-doubt"


def test_progress_is_stored_and_told(stage: Stage) -> None:
    claim = stage.claimed()
    report = '{"done":0.10,"of":9007199254740993}'
    with stage.news() as news:
        assert stage.live.report_progress(claim.tx_id, claim.fence, report) is None
        assert news() == f"progress:{claim.tx_id}:running"
    assert stage.fields(claim.tx_id)["progress"] == report


def test_a_refused_report_is_not_told(stage: Stage) -> None:
    claim = stage.claimed()
    with stage.news() as news:
        stage.live.report_progress(claim.tx_id, claim.fence - 1, "{}")
        stage.live.report_progress(claim.tx_id, claim.fence, "{}")
        assert news() == f"progress:{claim.tx_id}:running"
        assert news(timeout_s=0) is None


def test_the_priority_of_a_transaction_is_kept_until_it_is_placed_anew(stage: Stage) -> None:
    bell = stage.queued()
    assert stage.live.ring_again_many([bell.tx_id]) == [bell]
    claim = stage.claimed(bell)
    stage.checkpoint(claim)
    assert stage.fields(bell.tx_id)["priority"] == bell.priority == "in"
    stage.hand_over(claim, to=HERE)
    assert stage.fields(bell.tx_id)["priority"] == "out"
