"""`sealed: true`: payloads are plain for steps and owners, and rest sealed everywhere else."""

from __future__ import annotations

import json
from dataclasses import replace
from functools import partial
from typing import Any

import pytest
from sqlalchemy import text

from datp_tasks import Call, Fail, Pipeline, Sleep
from datp_tasks.client.requests import Request, Submitted
from datp_tasks.engine.orphaned_claims import OrphanedClaims
from datp_tasks.errors import (
    CannotSeal,
    ExternalIdConflict,
    InputInvalid,
    PipelineDisabled,
    SealBroken,
)
from datp_tasks.model.actor import Actor, Role
from datp_tasks.model.sealed import MASK, data_key_of
from datp_tasks.model.status import Status
from datp_tasks.runtime.clients import make_client
from datp_tasks.runtime.container import Container
from datp_tasks.testing import Kit
from tests.support.eventually import eventually
from tests.support.receiver import receiving
from tests.support.search_everywhere import places_with

ALICE = Actor(name="alice", role=Role.ADMIN)

Data = dict[str, Any]
#: A word that appears in every payload of these tests, and in nothing else.
WORD = "zanzibar"
NEW = Request(pipeline="pay", input={})


@pytest.fixture
def steps(datp: Kit) -> Kit:
    @datp.step("t/reserve", transactional=True)
    def reserve(ctx: Any, data: Data) -> Data:
        ctx.progress({"stage": f"{WORD} reserved"})
        return {**data, "reserved": f"{WORD}-1"}

    @reserve.rollback
    def release(ctx: Any, data: Data, output: Data) -> None:
        assert output["reserved"] == f"{WORD}-1"
        assert data["name"] == WORD

    @datp.step("t/wait")
    def wait(ctx: Any, data: Data) -> Any:
        assert data["name"] == WORD
        return {**data, "waited": True} if ctx.switch("go") else Sleep(switch="go", seconds=86_400)

    @datp.step("t/fail")
    def fail(ctx: Any, data: Data) -> None:
        raise Fail("no", {"because": WORD})

    @datp.step("t/break", retry={"max_attempts": 2, "first_s": 10})
    def broken(ctx: Any, data: Data) -> None:
        raise RuntimeError(f"{data['name']} is broken")

    @datp.step("t/call")
    def call(ctx: Any, data: Data) -> Any:
        return Call("child", {**data, "called": WORD})

    @datp.step("t/many", vector=True, transactional=True)
    def many(batch: Any) -> None:
        for item in batch:
            item.done({**item.data, "many": WORD})

    datp.use(
        Pipeline("pay", sealed=True).step("t/reserve").step("t/wait").step("t/many").build(),
        Pipeline("refuse", sealed=True).step("t/reserve").step("t/fail").build(),
        Pipeline("breaks", sealed=True).step("t/reserve").step("t/break").build(),
        Pipeline("parent", sealed=True).step("t/call").build(),
        Pipeline("child").step("t/reserve").build(),
    )
    return datp


def assert_sound(kit: Kit) -> None:
    kit.advance(days=1)
    assert {each.tx_id: each.faults for each in kit.operator.audit() if each.faults} == {}
    assert places_with(kit, WORD) == []


def test_a_sealed_transaction_rests_sealed_all_the_way_and_comes_out_as_it_went_in(
    steps: Kit,
) -> None:
    data = {"name": WORD, "amount": 12345678901234567890, "list": [1.5, None, "ä"]}
    tx_id = steps.submit("pay", data)
    assert steps.status(tx_id).status is Status.SLEEPING
    assert steps.status(tx_id).progress == {"stage": f"{WORD} reserved"}
    assert places_with(steps, WORD) == []
    steps.run_jobs()
    assert places_with(steps, WORD) == []
    summary = steps.set_switch(tx_id, "go", True)
    assert summary.status is Status.SUCCESS
    done = {**data, "reserved": f"{WORD}-1", "waited": True, "many": WORD}
    assert (summary.input, summary.output) == (data, done)
    assert_sound(steps)


def test_what_is_rolled_back_sees_its_own_data(steps: Kit) -> None:
    summary = steps.run("refuse", {"name": WORD})
    assert (summary.status, summary.note) == (Status.FAILED, "no")
    assert summary.output == {"because": WORD}
    assert_sound(steps)


@pytest.mark.parametrize(
    ("step_type", "params", "names"),
    [
        ("util/mandatory-fields", {"fields": {"name": {"type": "amount"}}}, "name must be"),
        ("util/mandatory-fields", {"fields": {"name": {"values": ["PH"]}}}, "name must be one of"),
        (
            "util/map-fields",
            {"fields": {"n": {"from": "name", "amount": "minor", "scale": 2}}},
            "n:",
        ),
        ("util/child-pipeline", {"field": "name", "map": {"x": "child"}}, "name is a sealed value"),
        ("util/delay", {"seconds": 1, "allowOverride": True}, "delaySeconds must be"),
    ],
)
def test_a_note_of_a_shipped_step_quotes_nothing_that_is_sealed(
    steps: Kit, step_type: str, params: Data, names: str
) -> None:
    steps.use(
        Pipeline("checks", sealed=True).step(step_type, params=params).build(),
        Pipeline("plain").step(step_type, params=params).build(),
    )
    summary = steps.run("checks", {"name": WORD, "delaySeconds": WORD})
    assert summary.status is Status.FAILED
    assert names in (summary.note or "")
    assert_sound(steps)
    plain = steps.run("plain", {"name": WORD, "delaySeconds": WORD})
    assert WORD in (plain.note or ""), "one that is not sealed says what was wrong with it"


def test_what_an_exception_said_is_sealed_as_well(steps: Kit) -> None:
    summary = steps.run("breaks", {"name": WORD})
    assert summary.status is Status.INTERNAL_ERROR
    assert WORD not in steps.operator.why(summary.tx_id).answer
    assert_sound(steps)
    shown = steps.operator.unmask(summary.tx_id, reason="ticket 4711", actor=ALICE)
    assert [WORD in each for each in shown.errors] == [True, True]


def test_a_child_pipeline_is_sealed_like_its_parent(steps: Kit) -> None:
    summary = steps.run("parent", {"name": WORD})
    assert summary.status is Status.SUCCESS
    assert_sound(steps)


def test_a_vector_of_sealed_transactions(steps: Kit) -> None:
    tx_ids = steps.submit_together("pay", [{"name": WORD, "n": n} for n in range(5)])
    for tx_id in tx_ids:
        steps.client.set_switch(tx_id, "go", True)
    found = [steps.status(tx_id) for tx_id in tx_ids]
    assert [each.status for each in found] == [Status.SUCCESS] * 5
    assert [each.output["n"] for each in found if each.output] == [*range(5)]
    assert_sound(steps)


def test_sealed_and_plain_versions_are_in_flight_at_once(steps: Kit) -> None:
    steps.use(Pipeline("both").step("t/wait").build())
    plain = steps.submit("both", {"name": WORD})
    steps.use(Pipeline("both", sealed=True).step("t/wait").build())
    sealed = steps.submit("both", {"name": WORD})
    steps.use(Pipeline("both").step("t/wait").step("t/many").build())
    later = steps.submit("both", {"name": WORD})
    for tx_id in (plain, sealed, later):
        steps.client.set_switch(tx_id, "go", True)
        assert steps.status(tx_id).status is Status.SUCCESS
    stored = steps.connections.record.summaries([plain, sealed, later])
    assert {each.tx_id: each.is_sealed for each in stored} == {
        plain: False,
        sealed: True,
        later: False,
    }


def test_the_same_request_again_is_the_same_transaction_also_when_sealing_is_turned_on(
    steps: Kit,
) -> None:
    plain, sealed = (Pipeline("p", sealed=each).step("t/many").build() for each in (False, True))
    steps.use(plain)
    first = steps.client.submit("p", {"name": WORD}, external_id="a")
    steps.use(sealed)
    second = steps.client.submit("p", {"name": WORD}, external_id="b")
    for before, now in ((first, "a"), (second, "b")):
        again = steps.client.submit("p", {"name": WORD}, external_id=now)
        assert (again.tx_id, again.duplicate) == (before.tx_id, True)
        with pytest.raises(ExternalIdConflict):
            steps.client.submit("p", {"name": "another"}, external_id=now)
    steps.use(plain)
    assert steps.client.submit("p", {"name": WORD}, external_id="b").tx_id == second.tx_id
    # Two requests of the same content cannot be told from their fingerprints.
    with steps.connections.engine.connect() as sql:
        prints = sql.execute(text("SELECT fingerprint FROM tx_summary")).scalars().all()
    assert len(set(prints)) == 2


def test_a_sealed_request_is_found_again_although_its_pipeline_was_disabled(steps: Kit) -> None:
    first = steps.client.submit("pay", {"name": WORD}, external_id="a")
    steps.connections.pipelines.disable("pay")
    wanted = Request(pipeline="pay", input={"name": WORD}, external_id="a")
    eventually(lambda: isinstance(steps.client.submit_many([NEW])[0], PipelineDisabled))
    [again] = steps.client.submit_many([wanted])
    assert isinstance(again, Submitted)
    assert (again.tx_id, again.duplicate) == (first.tx_id, True)
    [other] = steps.client.accepted_before([replace(wanted, input={"name": "another"})])
    assert isinstance(other, ExternalIdConflict)
    # A process without the ring cannot tell, and says so.
    vault = steps.connections.seals.vault
    vault.ring = None
    vault._known.clear()
    [unknown] = steps.client.accepted_before([wanted])
    assert isinstance(unknown, CannotSeal)


def test_a_webhook_tells_its_owner_what_rests_sealed(steps: Kit) -> None:
    with receiving() as receiver:
        tx_id = steps.submit(
            "pay", {"name": WORD}, webhook=receiver.url("/hook"), progress_reports=True
        )
        steps.client.set_switch(tx_id, "go", True)
        assert places_with(steps, WORD) == []
        steps.run_job("webhook_sender")
        told = sorted(
            (each.json for each in receiver.at("/hook")), key=lambda each: each["data"]["sequence"]
        )
    assert [each["type"] for each in told] == ["transaction.progress", "transaction.completed"]
    assert [each["data"]["progress"] for each in told] == [{"stage": f"{WORD} reserved"}] * 2
    assert told[1]["data"]["output"]["many"] == WORD


def test_after_a_loss_of_redis_it_goes_on_sealed(steps: Kit) -> None:
    tx_id = steps.submit("pay", {"name": WORD})
    steps.run_jobs()
    steps.connections.redis.flushdb()
    steps.recover()
    steps.advance(seconds=60)
    steps.client.set_switch(tx_id, "go", True)
    steps.recover()
    assert steps.status(tx_id).status is Status.SUCCESS
    assert places_with(steps, WORD) == []


def test_what_a_person_decides_about_it_is_sealed(steps: Kit) -> None:
    @steps.step("t/doubt", on_crash="review")
    def doubt(ctx: Any, data: Data) -> Data:
        return data

    steps.use(Pipeline("doubted", sealed=True).step("t/doubt").step("t/many").build())
    steps.crash_at("hop.after_step")
    tx_id = steps.client.submit("doubted", {"name": WORD}).tx_id
    steps.recover()
    assert steps.status(tx_id).status is Status.IN_DOUBT
    steps.operator.resolve(tx_id, "done", reason="asked the bank", output={"name": WORD})
    summary = steps.finish(tx_id)
    assert (summary.status, summary.output) == (Status.SUCCESS, {"name": WORD, "many": WORD})
    assert_sound(steps)


def test_without_the_key_ring_nothing_sealed_is_accepted_and_nothing_is_shown(steps: Kit) -> None:
    tx_id = steps.submit("pay", {"name": WORD})
    settings = replace(steps.settings, keyring="")
    with make_client(Container.open(settings, clock=steps.clock, send=steps.send)) as client:
        with pytest.raises(CannotSeal, match="DATP_SECURITY__KEYRING_FILE"):
            client.submit("pay", {"name": WORD})
        assert client.submit("child", {"name": "plain"}).tx_id
        assert client.status(tx_id).input == MASK
    assert len(steps.connections.record.page("", 10)) == 2


def test_a_worker_without_the_key_leaves_it_to_one_that_has_it(
    steps: Kit, caplog: pytest.LogCaptureFixture
) -> None:
    steps.lose_bells()
    tx_id = steps.submit("child", {"name": WORD})
    sealed = steps.submit("pay", {"name": WORD})
    vault = steps.connections.seals.vault
    ring, vault.ring = vault.ring, None
    vault._known.clear()
    steps.lose_bells(False)
    steps.ring_together([tx_id, sealed])
    assert steps.status(tx_id).status is Status.SUCCESS
    assert "cannot read its state" in caplog.text
    vault.ring = ring
    worker, connections = steps.process.worker, steps.connections
    free = partial(connections.recovery.take_over.from_node, worker.node)
    orphans = OrphanedClaims(connections.live, worker.hop, worker.node, free)
    orphans.look()
    orphans.look()
    steps.client.set_switch(sealed, "go", True)
    assert steps.finish(sealed).status is Status.SUCCESS


def test_a_sealed_value_of_another_transaction_does_not_open(steps: Kit) -> None:
    one, two = (steps.submit("pay", {"name": WORD, "n": n}) for n in (1, 2))
    swap = (
        "UPDATE tx_summary SET input = (SELECT input FROM tx_summary WHERE tx_id = :two) "
        "WHERE tx_id = :one"
    )
    with steps.connections.engine.begin() as sql:
        sql.execute(text(swap), {"one": one, "two": two})
    with pytest.raises(SealBroken):
        steps.status(one)
    assert steps.status(two).input == {"name": WORD, "n": 2}


def test_the_key_of_sealed_values_is_not_for_clients_or_steps(datp: Kit) -> None:
    @datp.step("t/cheat", retry={"max_attempts": 1})
    def cheat(ctx: Any, data: Data) -> Data:
        return {"$sealed": "x.y"}

    datp.use(Pipeline("p").step("t/cheat").build())
    with pytest.raises(InputInvalid, match="sealed"):
        datp.submit("p", {"$sealed": "x.y"})
    assert datp.run("p", {}).status is Status.INTERNAL_ERROR


def test_who_looks_into_a_sealed_transaction_is_written_down_first(steps: Kit) -> None:
    summary = steps.run("refuse", {"name": WORD})
    shown = steps.operator.unmask(summary.tx_id, reason="ticket 4711", actor=ALICE)
    assert shown.summary.input == {"name": WORD}
    with steps.connections.engine.connect() as sql:
        rows = sql.execute(text("SELECT actor, action, subject, reason FROM operator_action"))
        done = [tuple(row) for row in rows if not row.action.startswith("pipeline.")]
    assert done == [("alice", "transaction.unmask", summary.tx_id, "ticket 4711")]


def test_states_and_deltas_that_operators_see_hold_only_sealed_values(steps: Kit) -> None:
    summary = steps.run("refuse", {"name": WORD})
    deltas = [
        json.loads(line) for entry in steps.operator.deltas(summary.tx_id) for line in entry.deltas
    ]
    outs = [each["out"] for each in deltas if each.get("out")]
    assert outs
    assert all(data_key_of(each) for each in outs)
