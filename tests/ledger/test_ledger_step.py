"""`ledger/submit-batch`: a pipeline waits for its batch, and ends as the ledger says."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from typing import Any

import pytest

from datp_tasks import Pipeline
from datp_tasks.errors import PipelineInvalid
from datp_tasks.ledger.batch_list import derived_id, payloads, unsigned_batch_list
from datp_tasks.ledger.sim.faults import Fault
from datp_tasks.ledger.sim.sim_server import LedgerSim, SimThread
from datp_tasks.model.actor import Actor
from datp_tasks.model.ledger_batch import BatchState
from datp_tasks.model.status import Status
from datp_tasks.testing import Kit

PARAMS = {"service": "books", "content": "entry"}


@pytest.fixture
def sim(datp: Kit) -> Iterator[LedgerSim]:
    """A ledger on the clock of the kit, a service to it, and a pipeline that uses it."""
    sim = LedgerSim(seed=1, clock=lambda: (datp.clock.now_ms() or 0) / 1_000)
    sim.options.commit_ms = 0
    thread = SimThread(sim).start()
    datp.client.add_service("books", kind="sawtooth", url=thread.url)
    datp.use(Pipeline("book").step("ledger/submit-batch", params=PARAMS).build())
    yield sim
    thread.stop()


def run_for(datp: Kit, tx_id: str, seconds: int = 120) -> Any:
    for _ in range(seconds):
        summary = datp.status(tx_id)
        if summary.is_final:
            return summary
        datp.advance(seconds=1)
    return datp.status(tx_id)


def test_a_transaction_waits_until_its_batch_is_committed(datp: Kit, sim: LedgerSim) -> None:
    tx_id = datp.submit("book", {"entry": {"amount": "12.50"}, "more": 1})
    waiting = datp.status(tx_id)
    assert waiting.status is Status.SLEEPING
    assert waiting.progress is not None
    assert (waiting.progress["stage"], waiting.progress["state"]) == ("ledger", "NEW")
    ended = run_for(datp, tx_id, 5)
    assert ended.status is Status.SUCCESS
    receipt = ended.output["ledger"]
    batch_id = derived_id(f"{tx_id}:0")
    assert (receipt["service"], receipt["batch"], receipt["state"]) == (
        *("books", batch_id),
        "COMMITTED",
    )
    assert receipt["receipt"]["status"] == "COMMITTED"
    assert ended.output["more"] == 1
    assert [line["batch"] for line in sim.executions()] == [batch_id]


def test_what_the_ledger_gets_is_the_content_as_json(datp: Kit, sim: LedgerSim) -> None:
    run_for(datp, datp.submit("book", {"entry": {"b": 1, "a": "x"}}), 5)
    with datp.connections.engine.connect() as connection:
        payload = connection.exec_driver_sql("SELECT payload FROM ledger_batch").scalar_one()
    assert payloads(bytes(payload)) == [b'{"a":"x","b":1}']


def test_it_wakes_by_its_switch_and_not_by_the_clock(datp: Kit, sim: LedgerSim) -> None:
    tx_id = datp.submit("book", {"entry": {}})
    datp.run_job("claim_queuer")
    # No time has passed: the submitter itself has told it.
    assert datp.status(tx_id).status is Status.SUCCESS


def test_without_a_signal_it_looks_again_by_itself(datp: Kit, sim: LedgerSim) -> None:
    tx_id = datp.submit("book", {"entry": {}})
    datp.connections.engine.connect().close()
    with datp.connections.engine.begin() as connection:
        connection.exec_driver_sql("UPDATE ledger_batch SET tx_id = NULL")
    datp.run_job("claim_queuer")
    assert datp.status(tx_id).status is Status.SLEEPING
    assert run_for(datp, tx_id, 70).status is Status.SUCCESS


def test_an_invalid_batch_fails_the_transaction_with_the_reason(datp: Kit, sim: LedgerSim) -> None:
    tx_id = datp.submit("book", {"entry": {"simulate": "invalid"}})
    ended = run_for(datp, tx_id, 5)
    assert ended.status is Status.FAILED
    assert "the contract said no" in (ended.note or "")
    assert ended.output["ledger"]["state"] == "INVALID"


def test_a_crash_in_the_middle_submits_nothing_twice(datp: Kit, sim: LedgerSim) -> None:
    datp.crash_at("hop.after_step")
    tx_id = datp.submit("book", {"entry": {}})
    datp.recover()
    assert run_for(datp, tx_id).status is Status.SUCCESS
    assert sim.posts == 1
    assert len(sim.executions()) == 1


def test_steps_of_one_transaction_have_batches_of_their_own(datp: Kit, sim: LedgerSim) -> None:
    params = [{**PARAMS, "into": name} for name in ("first", "second")]
    pipeline = Pipeline("two")
    for each in params:
        pipeline.step("ledger/submit-batch", params=each)
    datp.use(pipeline.build())
    ended = run_for(datp, datp.submit("two", {"entry": {}}), 20)
    assert ended.status is Status.SUCCESS
    assert ended.output["first"]["batch"] != ended.output["second"]["batch"]
    assert len(sim.executions()) == 2


def test_batches_of_many_transactions_go_in_the_order_of_their_submission(
    datp: Kit, sim: LedgerSim
) -> None:
    ids = [datp.submit("book", {"entry": {"n": n}}) for n in range(8)]
    ends = [run_for(datp, tx_id, 30) for tx_id in ids]
    assert {end.status for end in ends} == {Status.SUCCESS}
    assert [line["batch"] for line in sim.executions()] == [
        end.output["ledger"]["batch"] for end in ends
    ]


def test_a_signed_batch_keeps_its_bytes_and_its_id(datp: Kit, sim: LedgerSim) -> None:
    params = {"service": "{{to}}", "payload": "signed"}
    datp.use(Pipeline("signed").step("ledger/submit-batch", params=params).build())
    batch_id = derived_id("signed elsewhere")
    text = base64.b64encode(unsigned_batch_list(batch_id, b"anything")).decode()
    ended = run_for(datp, datp.submit("signed", {"to": "books", "signed": text}), 5)
    assert ended.output["ledger"]["batch"] == batch_id


@pytest.mark.parametrize(
    ("params", "data", "note"),
    [
        ({"service": "nobody"}, {}, "there is no ledger service 'nobody'"),
        ({"service": "{{to}}"}, {}, "the data has no field to"),
        ({"service": "books", "content": "x.y"}, {}, "the data has no field x.y"),
        ({"service": "books", "payload": "p"}, {"p": "!!"}, "one signed batch"),
        ({"service": "books", "payload": "p"}, {}, "one signed batch"),
        ({"service": "books", "payload": "p"}, {"p": 5}, "one signed batch"),
        ({"service": "books", "payload": "p"}, {"p": "AAAA"}, "one signed batch"),
    ],
)
def test_what_cannot_become_a_batch_fails_at_once(
    datp: Kit, sim: LedgerSim, params: dict[str, Any], data: dict[str, Any], note: str
) -> None:
    datp.use(Pipeline("p").step("ledger/submit-batch", params=params).build())
    ended = datp.run("p", data)
    assert ended.status is Status.FAILED
    assert note in (ended.note or "")


@pytest.mark.parametrize(
    ("params", "mistake"),
    [
        ({}, "service must be given"),
        ({"service": ""}, "service must be given"),
        ({"service": "s", "serivce": 1}, "serivce is unknown"),
        ({"service": "s", "content": "a", "payload": "b"}, "cannot both be given"),
        ({"service": "s", "content": "a..b"}, "content must be a dotted path"),
        ({"service": "s", "into": ""}, "into must not be empty"),
        ({"service": "s", "seconds": 0}, "seconds must be a number"),
    ],
)
def test_a_mistake_in_its_params_is_named(datp: Kit, params: dict[str, Any], mistake: str) -> None:
    with pytest.raises(PipelineInvalid, match=mistake):
        datp.use(Pipeline("p").step("ledger/submit-batch", params=params).build())


def test_a_batch_that_an_operator_resolves_wakes_its_transaction(datp: Kit, sim: LedgerSim) -> None:
    tx_id = datp.submit("book", {"entry": {}})
    [batch] = datp.client.batches(service_id="books")
    operator = datp.connections.ledger.operator
    operator.park("books", batch.batch_id, actor=Actor(name="ann"), reason="wait")
    operator.resolve(
        "books",
        batch.batch_id,
        BatchState.COMMITTED,
        actor=Actor(name="ann"),
        reason="done by hand",
    )
    assert datp.status(tx_id).status is Status.SUCCESS
    assert sim.posts == 0


def test_a_ledger_that_is_down_for_a_while_only_costs_time(datp: Kit, sim: LedgerSim) -> None:
    sim.faults.set([Fault("post", "503-15", times=3)])
    tx_id = datp.submit("book", {"entry": {}})
    assert run_for(datp, tx_id, 60).status is Status.SUCCESS
    assert sim.posts == 4
