"""Bulk transfers: one commit accepts them, one deadline ends them, one report tells of each."""

from __future__ import annotations

import threading
from collections import Counter
from dataclasses import replace
from typing import Any

import pytest
from redis.exceptions import ConnectionError as RedisConnectionError

from datp_tasks import Fail, Pipeline, failpoints
from datp_tasks.client.bulk_report import BulkTransfer
from datp_tasks.client.requests import Request, Submitted
from datp_tasks.errors import (
    ExpiryInvalid,
    ExternalIdConflict,
    InputInvalid,
    NoReturn,
    PipelineInvalid,
    RequestError,
    TransactionUnknown,
)
from datp_tasks.failpoints import SimulatedCrash
from datp_tasks.model.actor import Actor
from datp_tasks.model.status import Status
from datp_tasks.model.stop_request import StopRequest
from datp_tasks.record.erasure import Erasure, ErasureOrder
from datp_tasks.record.points import Points
from datp_tasks.testing import Kit
from datp_tasks.transactions.send_signals import SignalSender

A_WHILE_S = 6
BULK = Request(pipeline="bulk", input={"payerFsp": "ann"}, external_id="b-1", expires_in_s=60)
#: Longer than what a recovery takes.
LONG = replace(BULK, expires_in_s=3_600)


@pytest.fixture
def paid(datp: Kit) -> Counter[str]:
    """What was reserved, paid and given back, by name."""
    done: Counter[str] = Counter()

    @datp.step("t/reserve")
    def reserve(ctx: Any, data: dict[str, Any]) -> None:
        if data.get("poor"):
            raise Fail("no money")
        done["reserved " + data["to"]] += 1

    @reserve.rollback
    def release(ctx: Any, data: dict[str, Any], output: Any) -> None:
        done["released " + data["to"]] += 1

    @datp.step("t/pay")
    def pay(ctx: Any, data: dict[str, Any]) -> None:
        done["paid " + data["to"]] += 1

    datp.use(
        Pipeline("transfer").step("t/reserve").step("t/pay", final_from=True).build(),
        Pipeline("slow").step("t/reserve").step("util/wait", params={"switch": "go"})
        .step("t/pay", final_from=True).build(),
        Pipeline("bound").step("t/reserve").step("t/pay", final_from=True)
        .step("util/wait", params={"switch": "go"}).build(),
        Pipeline("bulk").step("util/bulk-transfer").build(),
    )  # fmt: skip
    return done


def to(name: str, pipeline: str = "transfer", **more: Any) -> Request:
    options = {key: more.pop(key) for key in ("external_id", "expires_in_s") if key in more}
    return Request(pipeline=pipeline, input={"to": name, **more}, **options)


def submit(kit: Kit, *transfers: Request, bulk: Request = BULK) -> str:
    return kit.client.bulk_transfers.submit(bulk, transfers).tx_id


def show(kit: Kit, tx_id: str) -> BulkTransfer:
    return kit.client.bulk_transfers.show(tx_id)


def outcomes(bulk: BulkTransfer) -> list[str]:
    return [each["status"] for each in bulk.transfers]


def test_each_transfer_is_a_transaction_and_the_report_tells_of_each(
    datp: Kit, paid: Counter[str]
) -> None:
    tx_id = submit(datp, to("bob"), to("cid", poor=True), to("dan"))
    datp.advance(seconds=A_WHILE_S)
    bulk = show(datp, tx_id)
    assert (bulk.state, bulk.summary.status) == ("COMPLETED", Status.SUCCESS)
    assert outcomes(bulk) == ["success", "failed", "success"]
    assert bulk.counts == {"failed": 1, "success": 2}
    assert bulk.transfers[1]["note"] == "no money"
    assert paid == {"reserved bob": 1, "paid bob": 1, "reserved dan": 1, "paid dan": 1}
    report = bulk.summary.output
    assert report is not None
    assert (report["state"], report["payerFsp"]) == ("COMPLETED", "ann")
    assert [each["status"] for each in report["transfers"]] == outcomes(bulk)
    names = [datp.status(each["txId"]).external_id for each in bulk.transfers]
    assert names == ["b-1/0", "b-1/1", "b-1/2"]


def test_the_states_on_the_way(datp: Kit, paid: Counter[str]) -> None:
    datp.lose_bells()
    tx_id = submit(datp, to("bob", "slow"), to("cid"), bulk=LONG)
    assert show(datp, tx_id).state == "RECEIVED"
    datp.lose_bells(False)
    datp.recover()
    datp.advance(seconds=A_WHILE_S)
    assert show(datp, tx_id).state == "PROCESSING"
    assert outcomes(show(datp, tx_id)) == ["sleeping", "success"]
    datp.connections.redis.flushdb()
    datp.advance(seconds=A_WHILE_S)
    datp.set_switch(show(datp, tx_id).transfers[0]["txId"], "go", True)
    datp.advance(seconds=A_WHILE_S)
    assert show(datp, tx_id).state == "COMPLETED"


def test_a_bulk_expires_as_a_whole_and_what_was_committed_stays_so(
    datp: Kit, paid: Counter[str]
) -> None:
    tx_id = submit(datp, to("bob"), to("cid", "slow"), to("dan", "bound"), to("eve", "slow"))
    deadline = show(datp, tx_id).expires_at
    for each in show(datp, tx_id).transfers:
        assert datp.status(each["txId"]).expires_at == deadline
    for _ in range(5):
        datp.advance(seconds=20)
    bulk = show(datp, tx_id)
    assert bulk.state == "EXPIRING", "one is past its point of no return, and goes on"
    assert outcomes(bulk) == ["success", "expired", "sleeping", "expired"]
    datp.set_switch(bulk.transfers[2]["txId"], "go", True)
    datp.advance(seconds=60)
    bulk = show(datp, tx_id)
    assert (bulk.state, bulk.summary.status) == ("EXPIRED", Status.SUCCESS)
    assert outcomes(bulk) == ["success", "expired", "success", "expired"]
    assert paid["paid bob"] == paid["paid dan"] == 1
    assert paid["paid cid"] == paid["paid eve"] == 0
    assert paid["released cid"] == paid["released eve"] == 1
    assert paid["released bob"] == paid["released dan"] == 0


def test_a_transfer_with_an_earlier_deadline_keeps_it(datp: Kit, paid: Counter[str]) -> None:
    tx_id = submit(datp, to("bob", "slow", expires_in_s=10), to("cid", "slow", expires_in_s=600))
    bulk = show(datp, tx_id)
    times = [datp.status(each["txId"]).expires_at for each in bulk.transfers]
    assert times[1] == bulk.expires_at
    assert (times[1] - times[0]).total_seconds() == 50  # type: ignore[operator]


def test_a_bulk_itself_neither_expires_nor_is_cancelled(datp: Kit, paid: Counter[str]) -> None:
    tx_id = submit(datp, to("bob", "slow"))
    with pytest.raises(NoReturn):
        datp.client.cancel(tx_id)
    for _ in range(5):
        datp.advance(seconds=20)
    assert show(datp, tx_id).state == "EXPIRED"
    assert datp.status(tx_id).status is Status.SUCCESS


def cancelled(bulk: BulkTransfer) -> list[str]:
    return [each["cancel"] for each in bulk.transfers]


def test_a_cancelled_bulk_says_of_each_transfer_what_became_of_that(
    datp: Kit, paid: Counter[str]
) -> None:
    kinds = [to("bob"), to("cid", "slow"), to("dan", "bound"), to("eve", "unknown")]
    tx_id = submit(datp, *kinds)
    bulk = datp.client.bulk_cancel.cancel(tx_id, "wrong file")
    assert cancelled(bulk) == ["ended", "cancelled", "no-return", "none"]
    assert outcomes(bulk) == ["success", "cancelled", "sleeping", "refused"]
    assert "has passed its point of no return" in bulk.transfers[2]["cancelNote"]
    assert (paid["released cid"], paid["released dan"], paid["paid dan"]) == (1, 0, 1)
    assert bulk.state == "PROCESSING", "one goes on"
    datp.set_switch(bulk.transfers[2]["txId"], "go", True)
    datp.advance(seconds=60)
    again = datp.client.bulk_cancel.cancel(tx_id)
    assert (again.state, cancelled(again)) == ("COMPLETED", ["ended", "cancelled", "ended", "none"])
    assert outcomes(again) == ["success", "cancelled", "success", "refused"]
    with pytest.raises(TransactionUnknown):
        datp.client.bulk_cancel.cancel(again.transfers[0]["txId"])


def test_a_cancel_of_a_bulk_that_was_erased_finds_nothing_left_to_do(
    datp: Kit, paid: Counter[str]
) -> None:
    tx_id = submit(datp, to("bob"))
    datp.advance(seconds=A_WHILE_S)
    order = ErasureOrder(Actor(name="ops"), "request 7", {})
    assert Erasure(datp.connections.engine, datp.clock).erase([tx_id], order) == {}
    shown, again = show(datp, tx_id), datp.client.bulk_cancel.cancel(tx_id)
    assert (again.state, again.transfers, again.cancel_counts) == ("COMPLETED", [], {})
    assert shown.transfers == [] and paid["paid bob"] == 1


def test_a_transfer_in_doubt_is_not_cancelled_with_its_bulk(datp: Kit, paid: Counter[str]) -> None:
    """And it is not cancelled later: its client was told that it is refused."""

    @datp.step("t/doubt", on_crash="review", timeout_s=30)
    def doubt(ctx: Any, data: dict[str, Any]) -> None:
        return None

    datp.use(Pipeline("doubtful").step("t/doubt").build())
    datp.crash_at("hop.after_step")
    tx_id = submit(datp, to("bob", "doubtful"), to("cid", "slow"), bulk=LONG)
    datp.recover()
    bulk = datp.client.bulk_cancel.cancel(tx_id)
    assert cancelled(bulk) == ["refused", "cancelled"]
    assert "in doubt" in bulk.transfers[0]["cancelNote"]
    first = bulk.transfers[0]["txId"]
    assert datp.connections.recovery.rebuilder.signals.of([first]) == []


def test_a_cancel_of_a_bulk_that_breaks_off_keeps_none_for_what_would_refuse_it(
    datp: Kit, paid: Counter[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Once the doubt is resolved, a cancel that was never told would come out of SQL."""

    @datp.step("t/doubt", on_crash="review", timeout_s=30)
    def doubt(ctx: Any, data: dict[str, Any]) -> None:
        return None

    datp.use(Pipeline("doubtful").step("t/doubt").build())
    datp.crash_at("hop.after_step")
    tx_id = submit(datp, to("bob", "doubtful"), to("cid", "slow"), to("dan", "bound"), bulk=LONG)
    datp.recover()
    ids = [each["txId"] for each in show(datp, tx_id).transfers]

    def unreachable(*_: object) -> None:
        raise RedisConnectionError

    monkeypatch.setattr(SignalSender, "_send_stop", unreachable)
    with pytest.raises(RedisConnectionError):
        # As if they had come into doubt, and passed their point, after they were chosen.
        datp.client.bulk_cancel._signals.cancel_many(ids, "a test")
    kept = {each.tx_id for each in datp.connections.recovery.rebuilder.signals.of(ids)}
    assert kept == {ids[1]}
    record, late = datp.connections.record, StopRequest.cancel("late")
    points = Points(record.engine, record.clock)
    recorded = points.ask_many_to_stop(ids, late)
    assert (recorded[ids[1]].is_new, recorded[ids[2]].point) == (False, "final")
    assert points.ask_to_stop(ids[0], late).is_new, "nothing was recorded for what is in doubt"


@pytest.mark.parametrize(
    ("point", "asked_again"), [("bulk_cancel.after_sql", 3), ("cancel.after_seize", 0)]
)
def test_a_cancel_of_a_bulk_that_dies_on_its_way_is_carried_out_for_all(
    datp: Kit, paid: Counter[str], point: str, asked_again: int
) -> None:
    datp.lose_bells()
    tx_id = submit(datp, *(to(name, "slow") for name in ("bob", "cid", "dan")), bulk=LONG)
    datp.crash_at(point)
    with pytest.raises(BaseException):  # noqa: B017
        datp.client.bulk_cancel.cancel(tx_id)
    # One that is kept and not recorded was lost on its way, so its client may ask again.
    assert len(datp.client.bulk_cancel.to_ask(tx_id)) == asked_again
    datp.lose_bells(False)
    datp.recover()
    assert outcomes(show(datp, tx_id)) == ["cancelled"] * 3
    assert not [name for name in paid if name.startswith("paid")]


def test_a_cancel_that_is_repeated_asks_only_those_that_were_not_asked(
    datp: Kit, paid: Counter[str]
) -> None:
    tx_id = submit(datp, to("bob", "slow"), to("cid", "slow"), bulk=LONG)
    datp.lose_bells()
    bulks = datp.client.bulk_cancel
    assert len(bulks.to_ask(tx_id)) == 2
    assert cancelled(bulks.cancel(tx_id, "wrong file")) == ["stopping"] * 2
    assert bulks.to_ask(tx_id) == []
    signals = datp.connections.recovery.rebuilder.signals
    ids = [each["txId"] for each in show(datp, tx_id).transfers]
    before = signals.of(ids)
    record = datp.connections.record
    late = Points(record.engine, record.clock).ask_to_stop(ids[1], StopRequest.cancel("late"))
    assert not late.is_new, "the rows have the request, so that no point of no return is passed"
    again = bulks.cancel(tx_id, "another reason")
    assert (cancelled(again), signals.of(ids)) == (["stopping"] * 2, before)
    assert "asked to stop" in again.transfers[0]["cancelNote"]
    datp.lose_bells(False)
    datp.recover()
    assert outcomes(show(datp, tx_id)) == ["cancelled"] * 2


def test_a_cancel_that_is_kept_but_not_recorded_may_be_asked_again(
    datp: Kit, paid: Counter[str]
) -> None:
    """The process died between the two: who repeats it does not wait for the reconciler."""
    tx_id = submit(datp, to("bob", "slow"), to("cid", "slow"), bulk=LONG)
    datp.crash_at("bulk_cancel.after_sql")
    with pytest.raises(SimulatedCrash):
        datp.client.bulk_cancel.cancel(tx_id, "wrong file")
    failpoints.disarm_all()
    ids = [each["txId"] for each in show(datp, tx_id).transfers]
    kept = datp.connections.recovery.rebuilder.signals.of(ids)
    assert len(kept) == 2
    bulks = datp.client.bulk_cancel
    assert [each.tx_id for each in bulks.to_ask(tx_id)] == ids
    # Until it is asked for again, no transfer is called stopping.
    assert {each["cancel"] for each in bulks.ask(tx_id, [], "look").outcomes} == {"waiting"}
    assert cancelled(bulks.cancel(tx_id, "wrong file")) == ["cancelled"] * 2


def test_a_bulk_that_a_client_made_up_cancels_nothing(datp: Kit, paid: Counter[str]) -> None:
    """Its input may name any transaction of its owner, also twice; it has accepted none of them."""
    other = datp.submit("slow", {"to": "bob"})
    tx_id = datp.submit("bulk", {"transfers": [{"index": 0, "txId": other}] * 3})
    bulk = datp.client.bulk_cancel.cancel(tx_id)
    assert (cancelled(bulk), outcomes(bulk)) == (["none"] * 3, ["sleeping"] * 3)
    assert datp.status(other).status is Status.SLEEPING


def test_one_that_is_refused_does_not_hold_up_the_others(datp: Kit, paid: Counter[str]) -> None:
    datp.submit("transfer", {"to": "zoe"}, external_id="mine")
    tx_id = submit(datp, to("bob"), to("cid", "unknown"), to("dan", external_id="mine"))
    datp.advance(seconds=A_WHILE_S)
    bulk = show(datp, tx_id)
    assert outcomes(bulk) == ["success", "refused", "refused"]
    assert "unknown" in bulk.transfers[1]["problem"]
    assert "already used for another request" in bulk.transfers[2]["problem"]
    assert paid["paid dan"] == 0


def test_one_that_was_accepted_before_is_not_called_refused(datp: Kit, paid: Counter[str]) -> None:
    """A client that is told "refused" pays elsewhere, while the first one runs."""
    before = datp.submit("transfer", {"to": "dan"}, external_id="mine")
    tx_id = submit(datp, to("bob"), to("dan", external_id="mine"))
    datp.advance(seconds=A_WHILE_S)
    bulk = show(datp, tx_id)
    assert (outcomes(bulk), bulk.state) == (["success", "duplicate"], "COMPLETED")
    output = datp.status(tx_id).output or {}
    assert bulk.transfers[1]["duplicateOf"] == output["transfers"][1]["duplicateOf"] == before
    nameless = Request(pipeline="bulk", input={}, expires_in_s=60)
    transfers = [to("eve", external_id="e"), to("fay", external_id="f")]
    submit(datp, *transfers, bulk=nameless)
    with pytest.raises(ExternalIdConflict, match="2 of 2 transfers were accepted before"):
        submit(datp, *transfers, bulk=nameless)
    datp.advance(seconds=A_WHILE_S)
    assert paid["paid dan"] == paid["paid eve"] == paid["paid fay"] == 1


def test_a_bulk_that_would_be_refused_now_is_found_if_it_was_accepted(
    datp: Kit, paid: Counter[str]
) -> None:
    first = submit(datp, to("bob"))
    datp.use(Pipeline("bulk").step("t/pay").build())
    assert submit(datp, to("bob")) == first
    with pytest.raises(PipelineInvalid):
        submit(datp, to("bob"), bulk=LONG)


@pytest.mark.parametrize(
    ("name", "transfer", "says"),
    [("b" * 63, None, "would make 65"), ("b", "b", "has the external id of the bulk")],
)
def test_names_that_cannot_be_are_refused_with_the_whole_bulk(
    datp: Kit, paid: Counter[str], name: str, transfer: str | None, says: str
) -> None:
    bulk = Request(pipeline="bulk", input={}, external_id=name, expires_in_s=60)
    with pytest.raises(RequestError, match=says):
        submit(datp, to("bob"), to("cid", external_id=transfer), bulk=bulk)
    assert datp.connections.record.count() == 0


def test_a_bulk_of_which_nothing_can_be_accepted_is_refused(datp: Kit, paid: Counter[str]) -> None:
    with pytest.raises(RequestError, match="none of 2 transfers"):
        submit(datp, to("bob", "unknown"), to("cid", "unknown"))
    assert datp.connections.record.count() == 0


@pytest.mark.parametrize(
    ("bulk", "error"),
    [
        (Request(pipeline="bulk", input={}), ExpiryInvalid),
        (Request(pipeline="transfer", input={}, expires_in_s=9), PipelineInvalid),
        (Request(pipeline="bulk", input={"transfers": []}, expires_in_s=9), RequestError),
    ],
)
def test_what_is_no_bulk_is_refused(
    datp: Kit, paid: Counter[str], bulk: Request, error: type[Exception]
) -> None:
    with pytest.raises(error):
        submit(datp, to("bob"), bulk=bulk)
    with pytest.raises(RequestError, match="1 to"):
        submit(datp, bulk=BULK)
    assert not paid


def test_the_same_bulk_again_is_the_same_bulk(datp: Kit, paid: Counter[str]) -> None:
    first = submit(datp, to("bob"), to("cid"))
    again = datp.client.bulk_transfers.submit(BULK, [to("bob"), to("cid")])
    assert again == Submitted(first, again.status, duplicate=True)
    with pytest.raises(ExternalIdConflict):
        submit(datp, to("bob"), to("mallory", external_id="other"))
    datp.advance(seconds=120)
    assert submit(datp, to("bob"), to("cid")) == first, "also when its time is over"
    assert datp.connections.record.count() == 3
    assert paid == {"reserved bob": 1, "paid bob": 1, "reserved cid": 1, "paid cid": 1}


def test_two_that_hand_in_a_bulk_at_once_hand_in_one(datp: Kit, paid: Counter[str]) -> None:
    """Or, with other transfers under the same name, one of them is refused as a whole."""
    datp.lose_bells()
    for number in range(10):
        bulk = Request(pipeline="bulk", input={}, external_id=f"race-{number}", expires_in_s=60)
        answers: list[Any] = []
        start = threading.Barrier(2)

        def hand_in(
            name: str, bulk: Request = bulk, start: Any = start, to_: Any = answers
        ) -> None:
            start.wait()
            try:
                found = datp.client.bulk_transfers.submit(
                    bulk, [to(name, external_id=f"{bulk.external_id}-{name}")]
                )
                to_.append(found.duplicate)
            except ExternalIdConflict as error:
                to_.append(type(error))

        names = ("bob", "bob") if number % 2 else ("bob", "cid")
        threads = [threading.Thread(target=hand_in, args=(name,)) for name in names]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert Counter(answers) == Counter([False, True if number % 2 else ExternalIdConflict])
    assert datp.connections.record.count() == 20, "each a bulk and one transfer"


@pytest.mark.parametrize(
    ("point", "accepted"),
    [
        ("bulk_transfer.before_commit", False),
        ("bulk_transfer.after_commit", True),
        ("submit.after_create", True),
    ],
)
def test_a_crash_leaves_the_whole_bulk_or_nothing(
    datp: Kit, paid: Counter[str], point: str, accepted: bool
) -> None:
    datp.crash_at(point)
    with pytest.raises(BaseException):  # noqa: B017
        submit(datp, to("bob"), to("cid"))
    assert datp.connections.record.count() == (3 if accepted else 0)
    datp.recover()
    datp.advance(seconds=A_WHILE_S)
    tx_id = submit(datp, to("bob"), to("cid"))
    datp.advance(seconds=A_WHILE_S)
    assert outcomes(show(datp, tx_id)) == ["success", "success"]
    assert paid == {"reserved bob": 1, "paid bob": 1, "reserved cid": 1, "paid cid": 1}


def test_a_bulk_goes_on_after_its_worker_is_lost_and_after_redis_is(
    datp: Kit, paid: Counter[str]
) -> None:
    datp.crash_at("hop.after_claim")
    tx_id = submit(datp, to("bob", "slow"), to("cid"), bulk=LONG)
    datp.recover()
    datp.advance(seconds=A_WHILE_S)
    assert outcomes(show(datp, tx_id)) == ["sleeping", "success"]
    datp.set_switch(show(datp, tx_id).transfers[0]["txId"], "go", True)
    datp.advance(seconds=A_WHILE_S)
    assert show(datp, tx_id).state == "COMPLETED"
    assert paid["paid bob"] == paid["paid cid"] == 1


def test_an_input_that_names_transfers_of_another_owner_tells_nothing_of_them(
    datp: Kit, paid: Counter[str]
) -> None:
    foreign = datp.submit("transfer", {"to": "bob"}, owner="bank")
    made_up = {"transfers": [{"index": 0, "txId": foreign}]}
    tx_id = datp.submit("bulk", made_up, owner="mallory")
    datp.advance(seconds=A_WHILE_S)
    assert show(datp, tx_id).transfers == [{"index": 0, "txId": foreign, "status": "gone"}]


@pytest.mark.parametrize("expiry", ["soon", "2027-01-01T00:00:00", "0001-01-01T00:00+14:00", 7])
def test_an_input_that_a_client_made_up_is_shown_as_far_as_it_makes_sense(
    datp: Kit, paid: Counter[str], expiry: Any
) -> None:
    gone = f"t00-{'0' * 32}"
    ids = [["x"], {"x": 1}, 7, True, "x", gone]
    made_up = [{"txId": each, "index": {}, "externalId": [], "problem": 1} for each in ids]
    tx_id = datp.submit("bulk", {"transfers": [*made_up, "x"], "expiresAt": expiry})
    datp.advance(seconds=A_WHILE_S)
    found = show(datp, tx_id)
    refused = [{"index": n, "status": "refused"} for n in range(5)]
    assert found.transfers == [*refused, {"index": 5, "txId": gone, "status": "gone"}]
    assert found.expires_at is None
    assert found.summary.status is Status.SUCCESS
    wrong: list[Any] = ["paid", [], None]
    for status in wrong:
        output = {"transfers": [{"txId": ["x"]}, {"txId": gone, "status": status}]}
        reported = replace(found.summary, output=output)
        view = datp.client.bulk_transfers.view(reported)
        assert view.to_json()["counts"] == {"gone": 1, "refused": 5}


def test_an_input_that_is_too_large_with_its_transfers_says_so(
    datp: Kit, paid: Counter[str]
) -> None:
    limit = datp.settings.input_bytes_max
    for size, explained in ((limit - 100, True), (limit, False)):
        bulk = replace(BULK, input={"pad": "x" * size})
        with pytest.raises(InputInvalid, match="are allowed") as refused:
            submit(datp, to("bob"), to("cid"), bulk=bulk)
        assert ("each of its 2 transfers" in str(refused.value)) is explained


def test_a_bulk_that_a_person_ended_is_not_completed_before_its_transfers_are(
    datp: Kit, paid: Counter[str]
) -> None:
    tx_id = submit(datp, to("bob", "slow"))
    bulk = show(datp, tx_id)
    ended = replace(bulk.summary, status=Status.INTERNAL_ERROR)
    assert datp.client.bulk_transfers.view(ended).state == "PROCESSING"


def test_a_bulk_is_sealed_if_one_of_its_transfers_is(datp: Kit, paid: Counter[str]) -> None:
    datp.use(Pipeline("secret", sealed=True).step("t/reserve").step("t/pay").build())
    tx_id = submit(datp, to("bob", "secret"), to("cid"))
    datp.advance(seconds=A_WHILE_S)
    assert datp.connections.record.summaries([tx_id])[0].is_sealed
    assert outcomes(show(datp, tx_id)) == ["success", "success"]
