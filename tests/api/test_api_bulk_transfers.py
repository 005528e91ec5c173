"""Bulk transfers and their payees over HTTP and from the command line."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import pytest
from typer.testing import CliRunner

from datp_tasks import Pipeline
from datp_tasks.cli import bulk_transfers as command
from datp_tasks.client.bulk_transfers import ITEMS_MAX
from datp_tasks.errors import ApprovalNeeded, TransactionError
from datp_tasks.http import ApiClient
from datp_tasks.model.actor import Actor, Role
from datp_tasks.model.grants import Grants
from datp_tasks.operator import bulk as operator_bulk
from datp_tasks.record.vault import Vault
from datp_tasks.transactions.send_signals import SignalSender
from tests.support.api_house import ApiHouse, api_house
from tests.support.command_parts import command_parts
from tests.support.remote_terminal import RemoteTerminal, no_servers

PAYEE = {"owner": "payee.bank", "show": ["transferId", "amount"]}


@pytest.fixture
def bank(house: ApiHouse) -> ApiHouse:
    fails = {"fail": True, "note": "no money"}
    house.kit.use(
        Pipeline("pays", payee=PAYEE).step("util/fixed-reply", params={"output": {}}).build(),
        Pipeline("waits", payee=PAYEE).step("util/wait", params={"switch": "go"}).build(),
        Pipeline("refuses", payee=PAYEE).step("util/fixed-reply", params=fails).build(),
        Pipeline("bulk", payee={"owner": "payeeFsp"}).step("util/bulk-transfer").build(),
    )
    return house


def transfer(to: str, pipeline: str = "pays", **more: Any) -> dict[str, Any]:
    given = {"payee": {"bank": to}, "transferId": f"for-{to}", "amount": "1.00", "secret": "x"}
    return {"pipeline": pipeline, "input": given, **more}


def bulk(*transfers: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"pipeline": "bulk", "expiresInSeconds": 600, "transfers": list(transfers), **more}


def events_of(client: httpx.Client) -> list[dict[str, Any]]:
    found = client.get("/v1/events").json()["events"]
    return [each["data"] | {"type": each["type"]} for each in found]


def test_a_bulk_is_handed_in_and_reported_and_both_parties_are_told(bank: ApiHouse) -> None:
    payer, payee = bank.new_owner("payer"), bank.new_owner("payee")
    ann, bob = bank.client(payer), bank.client(payee)
    body = bulk(
        transfer(payee), transfer(payee, "refuses"), transfer(payee, "none"),
        externalId="salaries", input={"payeeFsp": payee},
    )  # fmt: skip
    response = ann.post("/v1/bulk-transfers", json=body)
    assert response.status_code == 202, response.text
    place = response.headers["location"]
    again = ann.post("/v1/bulk-transfers", json=body)
    assert (again.status_code, again.json()["duplicate"]) == (200, True)
    bank.kit.advance(seconds=10)
    shown = ann.get(place).json()
    assert (shown["state"], shown["externalId"]) == ("COMPLETED", "salaries")
    assert shown["counts"] == {"failed": 1, "refused": 1, "success": 1}
    assert [each["status"] for each in shown["transfers"]] == ["success", "failed", "refused"]
    assert bob.get(place).status_code == 404, "it is the payer's"
    ids = [each.get("txId") for each in shown["transfers"]][:2]

    told = {each["txId"]: each for each in events_of(bob)}
    assert {each["type"] for each in told.values()} == {"payee.completed"}
    assert told.keys() == {*ids, shown["bulkId"]}
    assert [told[each]["status"] for each in ids] == ["success", "failed"]
    assert told[ids[0]]["data"] == {"transferId": f"for-{payee}", "amount": "1.00"}
    assert told[ids[0]]["payer"] == payer
    own = [each["type"] for each in events_of(ann)]
    assert own.count("transaction.completed") == 3
    assert "payee.completed" not in own
    last = ann.get(f"/v1/transactions/{ids[0]}/events").json()["events"]
    assert [each["kind"] for each in last] == ["final"], "what the payee is told is the payee's"


def test_an_operator_sees_that_a_payee_was_told_and_not_what(bank: ApiHouse) -> None:
    payee = bank.new_owner("payee")
    ann = bank.client(bank.new_owner("payer"))
    ann.post("/v1/transactions", json=transfer(payee))
    ops = bank.client("ops", Role.OPERATOR)
    [event] = ops.get("/v1/events", params={"owner": payee}).json()["events"]
    assert event["owner"] == payee
    assert event["data"]["data"] != {"transferId": f"for-{payee}", "amount": "1.00"}


def test_the_endpoint_of_a_payee_gets_a_webhook_of_its_own(bank: ApiHouse) -> None:
    payee = bank.new_owner("payee")
    endpoints = bank.kit.connections.webhooks.endpoints
    made, _ = endpoints.add(payee, "https://bank.example/hook", types=["payee.completed"])
    untyped, _ = endpoints.add(payee, "https://bank.example/all")
    ann = bank.client(bank.new_owner("payer"))
    tx_id = ann.post("/v1/transactions", json=transfer(payee)).json()["txId"]
    endpoints.feed(endpoints_max=10, rows_max=100)
    [delivery] = bank.kit.connections.webhooks.store.of_endpoint(made.id)
    assert (delivery.owner, delivery.tx_id) == (payee, tx_id)
    assert bank.kit.connections.webhooks.store.of_endpoint(untyped.id) == []
    body = json.loads(bank.kit.connections.webhooks.store.payload(delivery.id))
    assert body["type"] == "payee.completed"
    assert "secret" not in json.dumps(body)


def test_a_payee_is_told_of_an_expiry_only_after_work_has_begun(bank: ApiHouse) -> None:
    payee = bank.new_owner("payee")
    ann, bob = bank.client(bank.new_owner("payer")), bank.client(payee)
    ann.post("/v1/transactions", json=transfer(payee, "waits", expiresInSeconds=5))
    bank.kit.lose_bells()
    ann.post("/v1/transactions", json=transfer(payee, "waits", expiresInSeconds=5))
    bank.kit.advance(seconds=10)
    bank.kit.lose_bells(False)
    bank.kit.advance(seconds=10)
    bank.kit.advance(seconds=10)
    found = ann.get("/v1/transactions").json()["transactions"]
    assert [each["status"] for each in found] == ["expired", "expired"]
    assert [each["status"] for each in events_of(bob)] == ["expired"]


def test_a_payee_is_not_told_of_a_cancel_before_work_has_begun(bank: ApiHouse) -> None:
    payee = bank.new_owner("payee")
    ann, bob = bank.client(bank.new_owner("payer")), bank.client(payee)
    begun = ann.post("/v1/transactions", json=transfer(payee, "waits")).json()["txId"]
    bank.kit.lose_bells()
    queued = ann.post("/v1/transactions", json=transfer(payee, "waits")).json()["txId"]
    ann.post(f"/v1/transactions/{queued}/cancel")
    bank.kit.lose_bells(False)
    ann.post(f"/v1/transactions/{begun}/cancel")
    statuses = [ann.get(f"/v1/transactions/{each}").json()["status"] for each in (queued, begun)]
    assert statuses == ["cancelled", "cancelled"]
    assert [each["txId"] for each in events_of(bob)] == [begun]


def test_a_payee_is_shown_no_more_than_its_feed_can_take(bank: ApiHouse) -> None:
    ann = bank.client(bank.new_owner("payer"))
    large = transfer("bank")
    large["input"]["amount"] = "1" * 8_192
    refused = ann.post("/v1/transactions", json=large)
    assert (refused.status_code, "8192 are allowed" in refused.json()["detail"]) == (422, True)


def test_a_payee_that_is_no_name_is_refused_and_one_without_an_owner_is_not_told(
    bank: ApiHouse,
) -> None:
    ann = bank.client(bank.new_owner("payer"))
    refused = ann.post("/v1/transactions", json=transfer("not a name"))
    assert refused.status_code == 422
    assert "payee.bank must be the name of an owner" in refused.json()["detail"]
    outside = {"pipeline": "pays", "input": {"payee": {}}}
    assert ann.post("/v1/transactions", json=outside).status_code == 202


@pytest.mark.parametrize(
    ("body", "kind"),
    [
        (bulk(), "request-invalid"),
        (bulk(transfer("b"), expiresInSeconds=None), "expiry-invalid"),
        (bulk(transfer("b"), pipeline="pays"), "pipeline-invalid"),
        (bulk(transfer("b", "none")), "request-invalid"),
        ({"pipeline": "bulk", "transfers": [{"input": {}}]}, "request-invalid"),
    ],
)
def test_a_bulk_that_does_not_fit_is_refused(bank: ApiHouse, body: Any, kind: str) -> None:
    response = bank.client(bank.new_owner("payer")).post("/v1/bulk-transfers", json=body)
    assert (response.status_code, response.json()["type"].rpartition(":")[2]) == (422, kind)


def test_a_transaction_that_is_no_bulk_is_not_shown_as_one(bank: ApiHouse) -> None:
    ann = bank.client(bank.new_owner("payer"))
    tx_id = ann.post("/v1/transactions", json=transfer("b")).json()["txId"]
    assert ann.get(f"/v1/bulk-transfers/{tx_id}").status_code == 404


def granted(bank: ApiHouse, owner: str, *grants: str) -> httpx.Client:
    return bank.client(key=bank.new_key(owner, grants=Grants.parse(grants)))


def test_the_length_of_a_bulk_is_checked_before_its_transfers_are(bank: ApiHouse) -> None:
    ann = bank.client(bank.new_owner("payer"))
    response = ann.post("/v1/bulk-transfers", json=bulk(*[{}] * 5_001))
    assert response.status_code == 422
    assert [each["pointer"] for each in response.json()["errors"]] == ["#/body/transfers"]


def test_a_bulk_that_is_refused_as_a_whole_costs_one_request(bank: ApiHouse) -> None:
    payer = bank.new_owner("payer")
    bank.limit(payer, requests_per_s=0.001, burst_max=5)
    many = [transfer("b")] * 20
    too_many = [transfer("b")] * (ITEMS_MAX + 1)
    answers = [
        granted(bank, payer, *grants).post("/v1/bulk-transfers", json=bulk(*transfers))
        for grants, transfers in [
            (["submit:pays"], many),
            (["submit:bulk"], many),
            (["submit:bulk", "submit:pays"], too_many),
        ]
    ]
    assert [each.status_code for each in answers] == [403, 422, 422]
    assert "lacks the grant submit:pays" in answers[1].json()["detail"]
    assert answers[2].json()["errors"][0]["pointer"] == "#/body/transfers"
    assert bank.client(payer).get("/v1/transactions").status_code == 200


def test_a_key_that_lost_its_grant_is_told_of_the_bulk_that_it_handed_in(bank: ApiHouse) -> None:
    payer = bank.new_owner("payer")
    body = bulk(transfer("b"), externalId="once")
    first = bank.client(payer).post("/v1/bulk-transfers", json=body).json()
    again = granted(bank, payer, "submit:pays").post("/v1/bulk-transfers", json=body)
    assert (again.status_code, again.json()) == (200, {**first, "duplicate": True})


def test_a_viewer_sees_what_became_of_transfers_and_no_text_of_the_client(bank: ApiHouse) -> None:
    ann = bank.client(bank.new_owner("payer"))
    viewer, ops = bank.client("eve", Role.VIEWER), bank.client("ops", Role.OPERATOR)
    body = bulk(transfer("b", externalId="iban"), transfer("b", "none", externalId="pin"))
    place = ann.post("/v1/bulk-transfers", json=body).headers["location"]
    first, second = viewer.get(place).json()["transfers"]
    assert first.keys() == {"index", "txId", "status", "completedAt"}
    assert second == {"index": 1, "status": "refused"}
    assert ops.get(place).json()["transfers"] == ann.get(place).json()["transfers"]
    refused = ann.get(place).json()["transfers"][1]
    assert refused.keys() == {"index", "externalId", "problem", "status"}
    noted = ops.get("/v1/audit/actions", params={"subject": place.rpartition("/")[2]})
    assert [each["action"] for each in noted.json()["actions"]] == ["bulk-transfer.read"]


def test_an_input_with_transfers_is_not_shown_to_those_who_see_no_payloads(bank: ApiHouse) -> None:
    ann, viewer = bank.client(bank.new_owner("payer")), bank.client("eve", Role.VIEWER)
    given = {"transfers": [{"card": "4111", "index": "4111", "txId": "4111", "note": "4111"}]}
    for pipeline, status in (("pays", 404), ("bulk", 200)):
        wanted = {"pipeline": pipeline, "input": given}
        tx_id = ann.post("/v1/transactions", json=wanted).json()["txId"]
        for client in (viewer, ann):
            response = client.get(f"/v1/bulk-transfers/{tx_id}")
            assert response.status_code == status, response.text
            assert "4111" not in response.text


def test_over_its_limit_only_what_was_accepted_before_is_answered(bank: ApiHouse) -> None:
    payer = bank.new_owner("payer")
    bank.limit(payer, in_flight_max=3)
    ann = bank.client(payer)
    body = bulk(transfer("b", "waits"), transfer("c", "waits"), externalId="first")
    assert ann.post("/v1/bulk-transfers", json=body).status_code == 202
    assert ann.post("/v1/bulk-transfers", json=body).status_code == 200
    other = ann.post("/v1/bulk-transfers", json=bulk(transfer("d"), externalId="second"))
    assert other.status_code == 429, other.text


def test_the_command_hands_in_and_shows_a_bulk_over_http(
    bank: ApiHouse, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    datp = RemoteTerminal(bank.url, bank.new_key(bank.new_owner("payer")))
    file = tmp_path / "bulk.json"
    file.write_text(json.dumps(bulk(transfer("b"), transfer("c"), externalId="cli")))
    with no_servers(monkeypatch, tmp_path):
        bulk_id = datp("bulk-transfers", "submit", str(file)).split(":")[0]
        assert "accepted before" in datp("bulk-transfers", "submit", str(file))
        bank.kit.advance(seconds=10)
        shown = datp("bulk-transfers", "show", bulk_id)
        assert "COMPLETED" in shown and "2 success" in shown
        assert datp.json("bulk-transfers", "show", bulk_id)["counts"] == {"success": 2}
        wrong = {"pipeline": "bulk", "transfers": [{"pipeline": "pays", "data": 1}]}
        file.write_text(json.dumps(wrong))
        refused = datp.run("bulk-transfers", "submit", str(file))
        assert "data is not a known key" in str(refused.exception)


def left_of(response: httpx.Response) -> int:
    return int(response.headers["ratelimit"].split(";r=")[1].split(";")[0])


def test_only_a_bulk_that_nothing_was_done_for_gets_its_rate_back(bank: ApiHouse) -> None:
    """Over its number in flight it does; with a pipeline that is not for bulks, its transfers were
    looked at."""
    payer = bank.new_owner("payer")
    bank.limit(payer, requests_per_s=0.001, burst_max=50, in_flight_max=9)
    ann = bank.client(payer)
    many = [transfer("b", externalId=f"m-{n}") for n in range(8)]
    over = bulk(*many, transfer("c"), transfer("d"))
    answers = [ann.post("/v1/bulk-transfers", json=over) for _ in range(4)]
    assert [each.status_code for each in answers] == [429] * 4
    assert "in flight" in answers[0].json()["detail"]
    assert left_of(answers[-1]) == 50 - 4
    wrong = ann.post("/v1/bulk-transfers", json=bulk(*many, pipeline="pays"))
    assert (wrong.status_code, left_of(wrong)) == (422, 46 - 9)
    # Each of these was looked up: it may have been accepted before.
    singles = [{**each, "externalId": None} for each in many + many]
    refused = ann.post("/v1/transactions/bulk", json={"transactions": singles})
    assert refused.status_code == 429 and "in flight" in refused.json()["detail"]
    assert left_of(refused) == 37 - 16
    done = ann.post("/v1/bulk-transfers", json=bulk(*many))
    assert (done.status_code, left_of(done)) == (202, 21 - 9), done.text


# Cancelling all of it.


def outcomes(response: httpx.Response) -> list[str]:
    return [each["cancel"] for each in response.json()["transfers"]]


def test_an_owner_cancels_a_bulk_and_is_told_of_each_transfer(bank: ApiHouse) -> None:
    access = {"cancel": "operator"}
    bank.kit.use(
        Pipeline("kept", access=access).step("util/wait", params={"switch": "go"}).build(),
        Pipeline("bound").step("util/fixed-reply", params={"output": {}}, final_from=True)
        .step("util/wait", params={"switch": "go"}).build(),
    )  # fmt: skip
    payer = bank.new_owner("payer")
    ann, eve = bank.client(payer), bank.client(bank.new_owner("eve"))
    body = bulk(*(transfer("b", each) for each in ("waits", "pays", "bound", "kept", "none")))
    place = ann.post("/v1/bulk-transfers", json=body).headers["location"] + "/cancel"
    assert eve.post(place).status_code == 404
    assert granted(bank, payer, "read", "submit:*").post(place).status_code == 403
    response = ann.post(place, json={"reason": "wrong file"}, headers={"Idempotency-Key": "once"})
    assert (response.status_code, response.json()["state"]) == (202, "PROCESSING")
    assert outcomes(response) == ["cancelled", "ended", "no-return", "refused", "none"]
    notes = [each.get("cancelNote") for each in response.json()["transfers"]]
    assert "point of no return" in notes[2] and "lacks the grant cancel" in notes[3]
    for each in response.json()["transfers"][2:4]:
        bank.kit.set_switch(each["txId"], "go", True)
    bank.kit.advance(seconds=10)
    again = ann.post(place, json={"reason": "wrong file"}, headers={"Idempotency-Key": "once"})
    assert (again.status_code, again.json()["state"]) == (200, "COMPLETED")
    assert outcomes(again) == ["cancelled", "ended", "ended", "ended", "none"]
    noted = bank.client("ops", Role.OPERATOR).get(
        "/v1/audit/actions", params={"subject": response.json()["bulkId"]}
    )
    [action] = [each for each in noted.json()["actions"] if each["action"].endswith("cancel")]
    assert (action["action"], action["reason"]) == ("bulk-transfer.cancel", "wrong file")


def test_a_cancel_costs_as_much_as_the_transfers_that_it_asks(bank: ApiHouse) -> None:
    payer = bank.new_owner("payer")
    bank.limit(payer, requests_per_s=0.001, burst_max=20)
    ann = bank.client(payer)
    body = bulk(*(transfer("b", "waits") for _ in range(4)), transfer("b"))
    handed_in = ann.post("/v1/bulk-transfers", json=body)
    place = handed_in.headers["location"] + "/cancel"
    bank.kit.lose_bells()
    first, second = ann.post(place), ann.post(place)
    bank.kit.lose_bells(False)
    assert left_of(handed_in) - left_of(first) == 1 + 4
    assert left_of(first) - left_of(second) == 1
    assert first.json()["cancelCounts"] == {"ended": 1, "stopping": 4}
    subject = {"subject": first.json()["bulkId"]}
    noted = bank.client("ops", Role.OPERATOR).get("/v1/audit/actions", params=subject)
    [action] = noted.json()["actions"]
    assert action["details"].keys() == {"count", "hash"} and action["details"]["count"] == 4


def test_an_operator_cancels_a_bulk_and_a_large_one_with_another_person(
    bank: ApiHouse, monkeypatch: pytest.MonkeyPatch
) -> None:
    ann = bank.client(bank.new_owner("payer"))
    few, many, urgent = (
        ann.post(
            "/v1/bulk-transfers", json=bulk(*(transfer(f"b-{n}", "waits") for n in range(count)))
        ).headers["location"]
        for count in (2, 21, 21)
    )
    assert bank.client("eve", Role.VIEWER).post(f"{few}/cancel").status_code == 403
    # The house lets one person do everything; this one keeps to the strict policy.
    with api_house(bank.kit, replace(bank.kit.settings, policy_file="")) as strict:
        ops, other = strict.client("ops", Role.OPERATOR), strict.client("boss", Role.APPROVER)
        assert ops.post(f"{few}/cancel").status_code == 422, "an operator says why"
        done = ops.post(f"{few}/cancel", json={"reason": "a fraud"})
        assert (done.status_code, outcomes(done)) == (200, ["cancelled"] * 2)
        again = ops.post(f"{few}/cancel", json={"reason": "a fraud"})
        assert (again.status_code, outcomes(again)) == (200, ["cancelled"] * 2)
        noted = ops.get("/v1/audit/actions", params={"subject": few.rpartition("/")[2]}).json()
        assert [each["action"] for each in noted["actions"]] == ["bulk-transfer.read"] * 2
        asked = ops.post(f"{many}/cancel", json={"reason": "a fraud"})
        assert asked.status_code == 202 and "approval" in asked.json()
        assert ann.get(many).json()["counts"] == {"sleeping": 21}
        waiting = ops.get(asked.json()["href"]).json()
        assert waiting["params"]["where"] == {"bulkTransfer": many.rpartition("/")[2]}
        with (
            ApiClient(strict.url, strict.new_key("ops", Role.OPERATOR)) as program,
            pytest.raises(ApprovalNeeded),
        ):
            program.cancel_bulk_transfer(many.rpartition("/")[2], "a fraud")
        agreed = other.post(f"{asked.json()['href']}/approve", json={"note": "seen"})
        assert agreed.status_code == 200, agreed.text
        assert ann.get(many).json()["counts"] == {"cancelled": 21}
        # Alone: some at once, and the job does the rest.
        monkeypatch.setattr(operator_bulk, "ITEMS_MAX", 4)
        cancel, first = (
            SignalSender.cancel,
            min(e["txId"] for e in ann.get(urgent).json()["transfers"]),
        )

        def refuses(self: SignalSender, tx_id: str, *given: Any, **more: Any) -> Any:
            if tx_id == first:
                raise TransactionError("it is in another hand")
            return cancel(self, tx_id, *given, **more)

        monkeypatch.setattr(SignalSender, "cancel", refuses)
        alone = ops.post(f"{urgent}/cancel", json={"reason": "a fraud", "breakGlass": True})
        assert alone.json()["cancelCounts"] == {"cancelled": 3, "refused": 1, "waiting": 17}
        [refused] = [each for each in alone.json()["transfers"] if each["cancel"] == "refused"]
        assert (refused["txId"], refused["cancelNote"]) == (first, "it is in another hand")


def test_an_operator_cancels_a_sealed_bulk_and_sees_no_transfers(
    bank: ApiHouse, monkeypatch: pytest.MonkeyPatch
) -> None:
    waits = Pipeline("sealed", sealed=True).step("util/wait", params={"switch": "go"}).build()
    bank.kit.use(waits)
    ann, ops = bank.client(bank.new_owner("payer")), bank.client("ops", Role.OPERATOR)
    place = ann.post("/v1/bulk-transfers", json=bulk(transfer("b", "sealed"))).headers["location"]
    assert ops.get(place).json()["transfers"] == []
    done = ops.post(f"{place}/cancel", json={"reason": "a fraud"})
    assert done.status_code == 200, done.text
    assert (done.json()["transfers"], done.json()["cancelCounts"]) == ([], {"cancelled": 1})
    assert ann.get(place).json()["counts"] == {"cancelled": 1}
    monkeypatch.setattr(Vault, "opened", lambda _, summary: summary.masked())
    refused = ops.post(f"{place}/cancel", json={"reason": "a fraud"})
    assert refused.status_code == 503 and "sealing-unavailable" in refused.json()["type"]


def test_the_command_cancels_a_bulk_with_and_without_a_url(
    bank: ApiHouse, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ann = bank.client(bank.new_owner("payer"))
    ids = [
        ann.post("/v1/bulk-transfers", json=bulk(transfer("b", "waits"))).json()["bulkId"]
        for _ in range(2)
    ]
    ops = RemoteTerminal(bank.url, bank.new_key("ops", Role.OPERATOR))
    with no_servers(monkeypatch, tmp_path):
        found = ops.json("bulk-transfers", "cancel", ids[0], "--reason", "wrong file", "--yes")
    assert [each["cancel"] for each in found["transfers"]] == ["cancelled"]
    context = command_parts(bank.kit, actor=Actor(name="ann"))
    monkeypatch.setattr(command, "connect", lambda: context)
    words = ["cancel", ids[1], "--reason", "wrong file"]
    unsure = CliRunner().invoke(command.app, words, input="n\n")
    assert unsure.exit_code == 1 and "(cancelled)" not in unsure.output
    result = CliRunner().invoke(command.app, words, input="y\n")
    assert "cancelled (cancelled)" in result.output, result.output
    paid = ann.post("/v1/bulk-transfers", json=bulk(transfer("b"))).json()["bulkId"]
    late = CliRunner().invoke(command.app, ["cancel", paid, "--reason", "wrong file", "--yes"])
    assert late.exit_code == 1 and "success (ended)" in late.output, late.output
