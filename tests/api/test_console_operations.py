"""What people do on the pages about pipelines, groups, webhooks, ledgers, alerts, and Try."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from html import unescape

import pytest

from datp_tasks.model.actor import LOCAL, Role
from datp_tasks.model.grants import Grants
from datp_tasks.model.ledger_batch import BatchState
from datp_tasks.model.status import Status
from datp_tasks.record.alerts import Alerts
from datp_tasks.record.audit_chain import AuditChain, Noted
from datp_tasks.testing import Kit
from tests.api.test_console_access import Guest, signed_in
from tests.support.api_house import ApiHouse, api_house
from tests.support.console_surroundings import Surroundings

REASON = {"reason": "ticket 12"}
YAML = "pipeline: greet\ndescription: {}\nsteps:\n  - type: t/echo\n"


@pytest.fixture(scope="module")
def strict(kit: Kit) -> Iterator[ApiHouse]:
    """An API that keeps to the strict policy: some things take two persons."""
    with api_house(kit, replace(kit.settings, policy_file="")) as made:
        yield made


def said(guest: Guest, place: str) -> str:
    """The page that a person is led to after a form, as text."""
    assert place.startswith("/console/"), place
    text = guest.http.get(place).text
    return unescape(re.sub(r"<[^>]+>", " ", text))


def noted(house: ApiHouse, action: str, subject: str) -> list[Noted]:
    chain = AuditChain(house.kit.connections.engine)
    return chain.actions(action=action, subject=subject)


def test_a_change_of_a_pipeline_goes_from_a_draft_to_use_by_two_persons(strict: ApiHouse) -> None:
    ann, bob = signed_in(strict, "ann", Role.ADMIN), signed_in(strict, "bob", Role.ADMIN)
    token = ann.token()
    wrong = ann.post("/drafts/check", token=token, yaml="pipeline: greet\nsteps: []\nodd: 1\n")
    assert wrong.status_code == 422
    assert "odd" in wrong.text and "2 to correct" in wrong.text
    assert ann.get("/pipelines/greet").status_code == 404, "checking stores nothing"
    good = ann.post("/drafts/check", token=token, yaml=YAML.format("one"))
    assert good.status_code == 200 and ">valid<" in good.text
    stored = ann.post("/drafts", token=token, yaml=YAML.format("one"))
    place = stored.headers["location"]
    version = place.rpartition("=")[2]
    assert f"Version {version} is stored as a draft" in said(ann, place)
    base = f"/pipelines/greet/versions/{version}"
    assert "comment" in said(ann, ann.post(f"{base}/commit", token=token).headers["location"])
    ann.post(f"{base}/commit", token=token, comment="the first one")
    assert ann.post(f"{base}/use", token=token).headers["location"].endswith("/pipelines/greet")
    asked = ann.post(f"{base}/use", token=token, **REASON).headers["location"]
    assert re.fullmatch(r"/console/approvals/\d+", asked)
    assert strict.kit.connections.pipelines.show("greet").info.in_use is False
    number = asked.rpartition("/")[2]
    [committed] = noted(strict, "pipeline.commit", "greet")
    assert committed.actor.startswith("key ") and committed.reason == "the first one"
    ann.post(f"/approvals/{number}/approve", token=token)
    assert strict.kit.connections.pipelines.show("greet").info.in_use is False, "not by herself"
    bob.post(f"/approvals/{number}/approve", token=bob.token())
    assert strict.kit.connections.pipelines.show("greet").info.in_use is True
    [use] = noted(strict, "pipeline.use", "greet")
    assert use.reason == "ticket 12"
    ann.post("/drafts", token=token, yaml=YAML.format("two"))
    versions = re.findall(r'id="version-([0-9a-f]+)"', ann.get("/pipelines/greet").text)
    assert versions[1] == version
    diff = ann.get(f"/pipelines/greet/diff?from={version}&to={versions[0]}").text
    assert "- description: one" in unescape(diff) and "+ description: two" in unescape(diff)
    ann.post("/pipelines/greet/disable", token=token, **REASON)
    assert [each.reason for each in noted(strict, "pipeline.disable", "greet")] == ["ticket 12"]


def test_counts_of_a_version_are_of_its_transactions(house: ApiHouse) -> None:
    kit = house.kit
    before = kit.connections.pipelines.show("nap").info.version
    listing = house.services.transactions.listing
    was = listing.by_version(5_000).get(("nap", before))
    sleeping, woken = (kit.submit("nap", {}, owner="counted") for _ in range(2))
    house.services.client.cancel(woken, "a test", by=LOCAL)
    assert kit.finish(woken).status is Status.CANCELLED
    now = listing.by_version(5_000)[("nap", before)]
    assert kit.status(sleeping).status is Status.SLEEPING
    assert now.in_flight - (was.in_flight if was else 0) == 1
    assert now.unsuccessful - (was.unsuccessful if was else 0) == 1


def test_values_of_a_group_are_changed_stopped_and_started(house: ApiHouse) -> None:
    guest = signed_in(house, "opal", Role.OPERATOR)
    token, groups = guest.token(), house.kit.connections.groups
    place = guest.post("/groups/kyc", token=token, concurrency="4", **REASON).headers["location"]
    assert "Changed: concurrency 4" in said(guest, place)
    assert groups.list()["kyc"].values == {"concurrency": 4}
    for wrong in ("-1", "four", "1001", "9" * 30):
        refused = guest.post("/groups/kyc", token=token, concurrency=wrong, **REASON)
        assert "concurrency" in said(guest, refused.headers["location"]), wrong
    guest.post("/groups/kyc", token=token, concurrency="9")
    assert groups.list()["kyc"].values == {"concurrency": 4}, "not without a reason"
    guest.post("/groups/kyc/stop", token=token, **REASON)
    assert groups.list()["kyc"].is_stopped
    guest.post("/groups/kyc/start", token=token, **REASON)
    assert groups.list()["kyc"].values == {}
    assert {each.reason for each in noted(house, "set group", "kyc")} == {"ticket 12"}
    answer = guest.post("/groups/master/stop", token=token, **REASON)
    assert "messages of beat" in said(guest, answer.headers["location"])
    assert guest.get("/groups/No%20Name").status_code == 404


def test_a_dead_webhook_is_found_and_sent_again(house: ApiHouse) -> None:
    guest = signed_in(house, "opal", Role.OPERATOR)
    tx_id = house.kit.submit("echo", {}, owner="hooked", webhook="https://shop.example.com/hook")
    store = house.kit.connections.webhooks.store
    [delivery] = store.deliveries(tx_id=tx_id)
    with house.kit.connections.engine.begin() as connection:
        connection.exec_driver_sql(
            "UPDATE webhook_delivery SET state = 'dead', finished_at = now() WHERE id = %s",
            (delivery.id,),
        )
    assert delivery.id in guest.get(f"/webhooks?state=dead&owner=hooked&txId={tx_id}").text
    assert delivery.id not in guest.get("/webhooks?state=delivered&owner=hooked").text
    answer = guest.post(f"/webhooks/{delivery.id}/redeliver", token=guest.token())
    assert "It is due now" in said(guest, answer.headers["location"])
    [redelivery] = noted(house, "webhook.redeliver", delivery.id)
    assert redelivery.actor.startswith("key ")
    assert guest.get("/webhooks/none").status_code == 404


def test_deciding_about_a_batch_takes_a_reason_and_two_persons(strict: ApiHouse) -> None:
    ann, bob = signed_in(strict, "ann", Role.OPERATOR), signed_in(strict, "bob", Role.APPROVER)
    batch = Surroundings(strict.kit).parked_batch("saw", "page")
    place, token = f"/ledgers/saw/{batch}", ann.token()

    def state() -> BatchState:
        return strict.kit.connections.ledger.batches.find("saw", batch).state

    row = re.compile(rf'title="{batch}"')
    assert row.search(ann.get("/ledgers?service=saw&state=PARKED").text)
    assert not row.search(ann.get("/ledgers?service=saw&state=NEW").text)
    ann.post(f"{place}/resume", token=token)
    assert state() is BatchState.PARKED, "not without a reason"
    ann.post(f"{place}/resume", token=token, **REASON)
    assert state() is BatchState.NEW
    refused = ann.post(f"{place}/resolve", token=token, decision="COMMITTED", **REASON)
    assert "it is NEW" in said(ann, refused.headers["location"])
    ann.post(f"{place}/park", token=token, **REASON)
    ann.post(f"{place}/resolve", token=token, decision="MAYBE", **REASON)
    assert state() is BatchState.PARKED
    asked = ann.post(f"{place}/resolve", token=token, decision="INVALID", **REASON)
    number = asked.headers["location"].rpartition("/approvals/")[2]
    assert number.isdecimal() and state() is BatchState.PARKED
    bob.post(f"/approvals/{number}/approve", token=bob.token())
    assert state() is BatchState.INVALID
    assert ann.get("/ledgers/saw/none").status_code == 404


def test_an_alert_is_closed_with_a_reason(house: ApiHouse) -> None:
    guest = signed_in(house, "opal", Role.OPERATOR)
    alerts = Alerts(house.kit.connections.engine, house.kit.connections.clock)
    alerts.raise_alert("odd", "subject of a page", "something happened")
    [alert] = alerts.open_alerts("odd")
    assert "something happened" in guest.get("/alerts").text
    guest.post(f"/alerts/{alert.id}/close", token=guest.token())
    assert alerts.open_alerts("odd") == [alert], "not without a reason"
    guest.post(f"/alerts/{alert.id}/close", token=guest.token(), **REASON)
    assert alerts.open_alerts("odd") == []
    [closing] = noted(house, "clear-alert", "odd subject of a page")
    assert closing.reason == "ticket 12"
    again = guest.post(f"/alerts/{alert.id}/close", token=guest.token(), **REASON)
    assert "open alert" in said(guest, again.headers["location"])


def test_the_verdict_about_the_chain_finds_what_was_changed(house: ApiHouse) -> None:
    guest = signed_in(house, "opal", Role.OPERATOR)
    house.kit.run_job("audit_sealer")
    whole = guest.get("/audit/chain")
    assert ">whole<" in whole.text
    head = re.search(r"\d+:[0-9a-f]{64}", whole.text)
    assert head is not None
    assert "the head that you gave" in guest.get(f"/audit/chain?head={head[0]}").text
    assert guest.get("/audit/chain?head=nonsense").status_code == 422
    [newest, *_] = AuditChain(house.kit.connections.engine).actions()
    sql = "UPDATE operator_action SET subject = %s WHERE id = %s"
    with house.kit.connections.engine.begin() as connection:
        connection.exec_driver_sql(sql, ("another", newest.id))
    assert ">not whole<" in guest.get("/audit/chain").text
    with house.kit.connections.engine.begin() as connection:
        connection.exec_driver_sql(sql, (newest.subject, newest.id))


def test_an_example_is_started_by_those_who_may(house: ApiHouse) -> None:
    admin, viewer = signed_in(house, "adam", Role.ADMIN), signed_in(house, "vic", Role.VIEWER)
    granted = Guest(house)
    key = house.new_key("grace", Role.VIEWER, grants=Grants.parse(["submit:echo"]))
    assert granted.sign_in(key).status_code == 303
    assert "no pipeline that you may start" in viewer.get("/try").text
    assert re.findall(r"<option[^>]*>(\w+)", granted.get("/try").text) == ["echo"]
    form = {"pipeline": "echo", "input": '{"a": 1}', "external_id": "try-1"}
    for guest, owner in ((admin, "adam"), (granted, "grace")):
        answer = guest.post("/try", token=guest.token(), **form)
        tx_id = answer.headers["location"].rpartition("/")[2]
        assert house.kit.finish(tx_id).status is Status.SUCCESS
        assert house.kit.status(tx_id).owner == owner
        again = guest.post("/try", token=guest.token(), **form)
        assert again.headers["location"] == answer.headers["location"]
    assert viewer.post("/try", token=viewer.token(), **form).status_code == 403
    other = {**form, "pipeline": "nap", "external_id": "try-2"}
    assert granted.post("/try", token=granted.token(), **other).status_code == 403
    for text, word in (("{", "no JSON"), ("[1]", "JSON object"), ("[" * 9_999, "no JSON")):
        wrong = admin.post("/try", token=admin.token(), **{**form, "input": text})
        assert (wrong.status_code, word in wrong.text) == (422, True), text[:9]
    used = admin.post("/try", token=admin.token(), **{**form, "input": '{"a": 2}'})
    assert used.status_code == 422 and "Traceback" not in used.text
