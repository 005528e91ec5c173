"""What people do on the pages about pipelines, groups, webhooks, ledgers, alerts, and Try."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterator
from dataclasses import replace
from html import unescape

import pytest

from datp_tasks import Pipeline
from datp_tasks.api.console import groups_page, ledgers_page, try_page
from datp_tasks.api.console.render import action_words, rate, told_words
from datp_tasks.api.console.subject_links import page_of_subject, page_or_search
from datp_tasks.api.console.transactions_page import conditions_of
from datp_tasks.api.services import Services
from datp_tasks.errors import DatabaseUnavailable
from datp_tasks.ledger.batch_types import Service
from datp_tasks.model.actor import LOCAL, Role
from datp_tasks.model.approval import ACTIONS, STEP
from datp_tasks.model.grants import Grants
from datp_tasks.model.ledger_batch import BatchState
from datp_tasks.model.node_groups import LIMITS, NodeGroup
from datp_tasks.model.plan import path_words, place_words
from datp_tasks.model.status import Status
from datp_tasks.record.alerts import Alerts
from datp_tasks.record.audit_chain import AuditChain, Noted
from datp_tasks.testing import Kit
from datp_tasks.testing.servers import Servers
from tests.api.test_console_access import Guest, signed_in
from tests.support.api_house import ApiHouse, api_house
from tests.support.archive_world import World
from tests.support.console_surroundings import Surroundings

#: The lines that name the two files of a unified diff are left out.
DIFF_BEGINS = r'<pre class="diff"[^>]*><span class="quiet">@@'
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
    assert ann.post(f"{base}/use", token=token).headers["location"].endswith(f"{base}/use")
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
    assert re.search(DIFF_BEGINS, diff)
    ann.post("/pipelines/greet/disable", token=token, **REASON)
    assert [each.reason for each in noted(strict, "pipeline.disable", "greet")] == ["ticket 12"]


@pytest.mark.parametrize(
    ("path", "given"),
    [("/groups/typed", {"concurrency": "4"}), ("/try", {"pipeline": "nap", "input": "{}"})],
)
def test_an_outage_during_a_form_is_logged_once_under_the_id_that_is_shown(
    house: ApiHouse,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    path: str,
    given: dict[str, str],
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise DatabaseUnavailable("PostgreSQL is unavailable")

    monkeypatch.setattr(groups_page, "change_group", fail)
    monkeypatch.setattr(try_page, "hand_in", fail)
    opal = signed_in(house, "opal", Role.OPERATOR)
    answer = opal.post(path, token=opal.token(), **given, **REASON)
    [logged] = [each.message for each in caplog.records if "record-unavailable" in each.message]
    [number] = re.findall(r"error (\w+):", logged)
    assert number in answer.text + answer.headers.get("location", "")


def test_counts_of_a_version_are_of_its_transactions(house: ApiHouse) -> None:
    kit = house.kit
    before = kit.connections.pipelines.show("nap").info.version
    listing = house.services.transactions.listing
    was = listing.by_version(5_000).get(("nap", before))
    sleeping, woken = (kit.submit("nap", {}, owner="counted") for _ in range(2))
    house.services.client.cancel(woken, "a test", by=LOCAL)
    assert kit.finish(woken).status is Status.CANCELLED
    now = listing.by_version(5_000)[("nap", before)]
    shown = signed_in(house, "vic", Role.VIEWER).get("/pipelines/nap").text
    row = shown.partition(f'id="version-{before}"')[2].partition("</tr>")[0]
    assert f"{now.unsuccessful} ({rate(100 * now.unsuccessful / now.ended)} %)" in row
    assert re.search(rf"in flight </span>{now.in_flight}<", row)
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
        assert refused.status_code == 422, wrong
        assert "concurrency" in alert_in(refused.text), wrong
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
    guest.post(f"/webhooks/{delivery.id}/redeliver", token=guest.token())
    assert store.deliveries(tx_id=tx_id)[0].state == "dead", "not without a reason"
    answer = guest.post(f"/webhooks/{delivery.id}/redeliver", token=guest.token(), **REASON)
    assert "It is due now" in said(guest, answer.headers["location"])
    [redelivery] = noted(house, "webhook.redeliver", delivery.id)
    assert redelivery.actor.startswith("key ") and redelivery.reason == "ticket 12"
    assert guest.get("/webhooks/none").status_code == 404


def test_deciding_about_a_batch_takes_a_reason_and_two_persons(strict: ApiHouse) -> None:
    ann, bob = signed_in(strict, "ann", Role.OPERATOR), signed_in(strict, "bob", Role.APPROVER)
    batch = Surroundings(strict.kit).parked_batch("saw", "page")
    place, token = f"/ledgers/saw/{batch}", ann.token()

    def state() -> BatchState:
        return strict.kit.connections.ledger.batches.find("saw", batch).state

    listed = f'href="/console{place}">'
    assert listed in ann.get("/ledgers?service=saw&state=PARKED").text.partition("batch-rows")[2]
    assert listed not in ann.get("/ledgers?service=saw&state=NEW").text.partition("batch-rows")[2]
    commands = re.findall(r'data-copy="([^"]*)"', ann.get(f"{place}/act/resolve").text)
    assert [shlex.split(unescape(each))[5:7] for each in commands] == [
        ["--as", "COMMITTED"],
        ["--as", "INVALID"],
    ]
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


def test_an_approval_counts_the_step_as_the_note_beside_it_does(strict: ApiHouse) -> None:
    tx_id = World(strict.kit).crashed("pay", "hop.after_step", nth=2)
    strict.kit.recover()
    ann = signed_in(strict, "ann", Role.ADMIN)
    form = {"decision": "redo", "token": ann.token(), **REASON}
    page = said(ann, ann.post(f"/transactions/{tx_id}/resolve", **form).headers["location"])
    assert '"step": "step 2 of pay"' in page and "pay/1" not in page


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
    closed = guest.get("/alerts").text.partition('id="cleared-rows"')[2]
    row = closed.partition(f'id="cleared-{alert.id}"')[2].partition("</tr>")[0]
    assert row.count("<time ") == 2, "when it was raised, and when it was closed"
    again = guest.post(f"/alerts/{alert.id}/close", token=guest.token(), **REASON)
    assert "open alert" in said(guest, again.headers["location"])


def test_alerts_about_webhooks_are_told_apart(house: ApiHouse) -> None:
    guest, batch = signed_in(house, "opal", Role.OPERATOR), "ab" * 64
    alerts = Alerts(house.kit.connections.engine, house.kit.connections.clock)
    places = [f"acme https://hooks.example.com/{'long/' * 9}{each}/done" for each in "ab"]
    for each in places:
        alerts.raise_alert("webhook-target-failing", each, "no answer")
    alerts.raise_alert("ledger-batch-parked", f"long/{batch}", "a person must decide")
    shown = " ".join(said(guest, "/console/alerts").split())
    assert [each in shown for each in places] == [True, True]
    assert f"long/{batch[:12]}…{batch[-6:]}" in shown and batch not in shown


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
    for text, word in (
        *(("{", "not JSON"), ("[1]", "JSON object"), ("[" * 9_999, "nested too deeply")),
        # Money: what a float cannot hold, and what is there twice, is not changed in silence.
        *(('{"a": 0.12345678901234567890}', "0.1234"), ('{"a": 1, "a": 2}', "twice")),
    ):
        wrong = admin.post("/try", token=admin.token(), **{**form, "input": text})
        assert (wrong.status_code, word in wrong.text) == (422, True), text[:9]
    used = admin.post("/try", token=admin.token(), **{**form, "input": '{"a": 2}'})
    assert used.status_code == 422 and "Traceback" not in used.text


def test_an_endpoint_is_registered_tested_rotated_replayed_and_disabled(house: ApiHouse) -> None:
    admin, opal = signed_in(house, "adam", Role.ADMIN), signed_in(house, "opal", Role.OPERATOR)
    token, service = admin.token(), house.kit.connections.webhooks.endpoints
    form = {"token": token, "owner": "told", "url": "https://shop.example.com/events"}
    assert admin.post("/endpoints", **form).status_code == 422, "not without a reason"
    wrong = admin.post("/endpoints", **{**form, "url": "ftp://shop.example.com"}, **REASON)
    assert wrong.status_code == 422 and "ftp://shop.example.com" in wrong.text, "the form is kept"
    assert service.store.find_all(owner="told") == []
    assert opal.post("/endpoints", **{**form, "token": opal.token()}, **REASON).status_code == 403
    chosen = {"type-transaction.completed": "yes", "description": "the shop"}
    made = admin.post("/endpoints", **form, **chosen, **REASON)
    [endpoint] = service.store.find_all(owner="told")
    secrets = house.kit.connections.webhooks.store.secrets
    assert secrets(endpoint.signer)[0].secret in unescape(made.text)
    assert (endpoint.types, endpoint.description) == (("transaction.completed",), "the shop")
    place = f"/endpoints/{endpoint.id}"
    assert secrets(endpoint.signer)[0].secret not in admin.get(place).text, "shown once"
    for action in ("test", "rotate", "disable", "replay", "delete"):
        assert endpoint.url in unescape(admin.get(f"{place}/act/{action}").text), action
        shown = opal.get(f"{place}/act/{action}").text
        assert "needs the role admin" in shown and "<textarea" not in shown
    minute = r"\d{4}-\d\d-\d\dT\d\d:\d\d"
    shown = unescape(admin.get(f"{place}/act/replay").text)
    since, until = re.findall(rf'type="datetime-local"[^>]* value="({minute})"', shown)
    assert f"replay {endpoint.id} --from {since}Z --to {until}Z" in shown, "as the form has it"
    tested = admin.post(f"{place}/test", token=token).headers["location"]
    assert "test" in said(admin, tested) and endpoint.id in said(admin, tested)
    long = admin.post(f"{place}/rotate", token=token, overlap_s="31622401", **REASON)
    assert "31,622,400" in said(admin, long.headers["location"])
    assert len(secrets(endpoint.signer)) == 1, "refused, as by the API"
    rotated = admin.post(f"{place}/rotate", token=token, overlap_s="60", **REASON)
    assert [each.secret in unescape(rotated.text) for each in secrets(endpoint.signer)] == [
        True,
        False,
    ]
    times = {"from": "2027-01-31T12:00", "to": "2027-01-31T13:00"}
    for bad in ({**times, "to": "soon"}, {**times, "to": "2027-01-31T11:00"}):
        refused = admin.post(f"{place}/replay", token=token, **bad, **REASON)
        assert "/act/replay" in refused.headers["location"], bad
    admin.post(f"{place}/replay", token=token, **times, **REASON)
    replay = service.store.find(endpoint.id).replay
    assert replay is not None and replay.until.isoformat() == "2027-01-31T13:00:00+00:00"
    admin.post(f"{place}/disable", token=token)
    assert service.store.find(endpoint.id).enabled, "not without a reason"
    admin.post(f"{place}/disable", token=token, **REASON)
    assert not service.store.find(endpoint.id).enabled
    assert "It is disabled" in unescape(admin.get(f"{place}/act/test").text)
    admin.post(f"{place}/enable", token=token, **REASON)
    assert service.store.find(endpoint.id).enabled
    admin.post(f"{place}/delete", token=token, **REASON)
    assert admin.get(place).status_code == 404
    did = ["delete", "change", "change", "replay", "test", "add"]
    chain = AuditChain(house.kit.connections.engine)
    rows = chain.actions(subject=endpoint.id)
    assert [each.action for each in rows] == [f"webhook-endpoint.{each}" for each in did]
    assert [each.reason for each in rows if not each.action.endswith(".test")] == ["ticket 12"] * 5
    assert len({each.actor for each in rows}) == 1, "the test is his as the rest"
    assert [each.reason for each in chain.actions(subject=endpoint.signer)] == ["ticket 12"]


def test_a_search_attribute_has_one_condition_of_a_kind(house: ApiHouse) -> None:
    guest = signed_in(house, "opal", Role.OPERATOR)
    twice = guest.get("/transactions?attr=payee%3Dann%2C+payee%3Dbob")
    assert twice.status_code == 422 and "payee has two conditions" in twice.text
    assert conditions_of("amount>=1, amount<5") == {"amount[gte]": "1", "amount[lt]": "5"}


def test_a_ledger_service_is_registered_and_gets_another_address(house: ApiHouse) -> None:
    admin, opal = signed_in(house, "adam", Role.ADMIN), signed_in(house, "opal", Role.OPERATOR)
    token, store = admin.token(), house.kit.connections.ledger.batches
    form = {"service": "notary", "kind": "sawtooth", "url": "http://127.0.0.1:8008", "secret": ""}
    assert admin.post("/services", token=token, **form).status_code == 422, "without a reason"
    for change in ({"kind": "paper"}, {"service": "no/name"}, {"url": "http://elsewhere"}):
        refused = admin.post("/services", token=token, **{**form, **change}, **REASON)
        assert refused.status_code == 422, change
    assert opal.post("/services", token=opal.token(), **form, **REASON).status_code == 403
    assert store.services(["notary"]) == []
    answer = admin.post("/services", token=token, **form, **REASON)
    assert "go to http://127.0.0.1:8008" in said(admin, answer.headers["location"])
    shown = admin.get("/services/new?service=notary").text
    assert 'value="http://127.0.0.1:8008"' in shown
    first = seen_in(shown)
    with_secret = {**form, "secret": "notary-key", "known": "notary", "seen": first}
    admin.post("/services", token=token, **with_secret, **REASON)
    # A form that did not show what exists does not replace it, and shows it now.
    moved = {**form, "url": "http://127.0.0.1:8009"}
    for unseen in ({}, {"known": "other"}, {"known": "notary", "seen": first}):
        again = admin.post("/services", token=token, **moved, **unseen, **REASON)
        assert again.status_code == 409 and "with the secret notary-key" in unescape(again.text)
        told = "was changed after" if "seen" in unseen else "notary exists"
        assert told in again.text and "Nothing was stored" in again.text
        for name, value in {**moved, "secret": "notary-key", "known": "notary"}.items():
            assert name == "kind" or re.search(rf'name="{name}"[^>]* value="{value}"', again.text)
    assert [each.secret for each in store.services(["notary"])] == ["notary-key"]
    assert 'href="/console/services/new?service=notary"' in admin.get("/ledgers").text
    admin.post(
        "/services", token=token, **moved, known="notary", seen=seen_in(again.text), **REASON
    )
    [now] = store.services(["notary"])
    assert (now.url, now.secret) == ("http://127.0.0.1:8009", None)
    rows = noted(house, "service.add", "notary")
    assert {each.reason for each in rows} == {"ticket 12"} and len(rows) == 3


def test_a_form_about_one_ledger_service_does_not_replace_another(house: ApiHouse) -> None:
    admin, store = signed_in(house, "adam", Role.ADMIN), house.kit.connections.ledger.batches
    for name in ("twin-a", "twin-b"):
        # Of one gateway, with one secret.
        store.add_service(
            Service(service_id=name, kind="sawtooth", url="http://127.0.0.1:8008", secret="key")
        )
    form = form_of(admin.get("/services/new?service=twin-a").text, "/services")
    form |= {"kind": "sawtooth", "service": "twin-b", "url": "http://127.0.0.1:8009", **REASON}
    refused = admin.post("/services", **form)
    assert refused.status_code == 409 and "twin-b exists" in refused.text
    assert [each.url for each in store.services(["twin-b"])] == ["http://127.0.0.1:8008"]


def test_a_form_about_a_ledger_service_does_not_offer_to_take_back_a_change(
    house: ApiHouse,
) -> None:
    admin, store = signed_in(house, "adam", Role.ADMIN), house.kit.connections.ledger.batches

    def put(port: int, secret: str) -> None:
        url = f"http://127.0.0.1:{port}"
        store.add_service(Service(service_id="both", kind="sawtooth", url=url, secret=secret))

    put(8008, "one")
    opened = form_of(admin.get("/services/new?service=both").text, "/services")
    put(8009, "two")
    moved = {"url": "http://127.0.0.1:8010"}
    for typed, offered in (
        ({}, {"url": "http://127.0.0.1:8009", "secret": "two"}),
        (moved, {**moved, "secret": "two"}),
        ({"secret": ""}, {"url": "http://127.0.0.1:8009", "secret": ""}),
    ):
        refused = admin.post("/services", **{**opened, "kind": "sawtooth", **typed, **REASON})
        assert refused.status_code == 409 and "was changed after you opened" in refused.text
        form = form_of(refused.text, "/services")
        assert form | offered | REASON == form, typed
    # The last one, sent as it is shown now.
    assert admin.post("/services", **form, kind="sawtooth").status_code == 303
    [now] = store.services(["both"])
    assert (now.url, now.secret) == ("http://127.0.0.1:8009", None)


def seen_in(page: str) -> str:
    """As what a form of a ledger service has seen it."""
    found = re.search(r'name="seen" value="(\w+)"', page)
    assert found is not None
    return found[1]


def test_of_two_changes_of_a_service_at_once_one_is_told(
    house: ApiHouse, monkeypatch: pytest.MonkeyPatch
) -> None:
    admin, store = signed_in(house, "adam", Role.ADMIN), house.kit.connections.ledger.batches
    look = ledgers_page._service
    form = {"service": "raced", "kind": "sawtooth", "url": "http://127.0.0.1:8008", "secret": ""}

    def then_another(services: Services, name: str) -> Service | None:
        """Between the look of the page and its write, another person writes."""
        found = look(services, name)
        monkeypatch.setattr(ledgers_page, "_service", look)
        store.add_service(Service(service_id=name, kind="sawtooth", url=f"http://127.0.0.1:{port}"))
        return found

    for port in ("8010", "8011"):
        page = admin.get("/services/new?service=raced").text
        known = {"known": "raced", "seen": seen_in(page)} if port == "8011" else {}
        monkeypatch.setattr(ledgers_page, "_service", then_another)
        lost = admin.post("/services", token=admin.token(), **form, **known, **REASON)
        assert lost.status_code == 409 and f"go to http://127.0.0.1:{port}" in lost.text
        assert [each.url for each in store.services(["raced"])] == [f"http://127.0.0.1:{port}"]
    assert noted(house, "service.add", "raced") == []


def test_a_form_about_a_group_does_not_take_back_what_another_person_changed(
    house: ApiHouse,
) -> None:
    opal, groups = signed_in(house, "opal", Role.OPERATOR), house.kit.connections.groups
    token = opal.token()
    shown = {f"was-{key}": "" for key in LIMITS} | dict.fromkeys(LIMITS, "")
    # Another person after the form was opened.
    groups.set("shared", {"concurrency": 3}, actor=LOCAL, reason="a test")
    changed = {**shown, "queueAgeSeconds": "60"}
    answer = opal.post("/groups/shared", token=token, **changed, **REASON)
    assert "Changed: queueAgeSeconds 60." in said(opal, answer.headers["location"])
    values = {"concurrency": 3, "queueAgeSeconds": 60}
    assert groups.list()["shared"].values == values
    both = {**shown, "concurrency": "5", "queueAgeSeconds": "", "ledger": "1"}
    refused = opal.post("/groups/shared", token=token, **both, **REASON)
    assert refused.status_code == 409
    told = "concurrency was changed after you opened this form (now: concurrency 3)"
    assert told in refused.text
    assert groups.list()["shared"].values == values
    # What was typed stays, what was not has the values of now, and the form can be sent.
    form = form_of(refused.text, "/groups/shared")
    kept = {"concurrency": "5", "was-concurrency": "3", "queueAgeSeconds": "60", "ledger": "1"}
    assert form | kept | REASON == form
    opal.post("/groups/shared", **form)
    assert groups.list()["shared"].values == {**values, "concurrency": 5, "ledger": 1}
    cleared = {**shown, "was-concurrency": "7", "was-queueAgeSeconds": "7"}
    refused = opal.post("/groups/shared", token=token, **cleared, **REASON)
    assert "concurrency and queueAgeSeconds were changed after you" in refused.text
    assert form_of(refused.text, "/groups/shared")["concurrency"] == "", "cleared on purpose"


def test_a_form_about_a_group_that_is_refused_keeps_what_was_typed(house: ApiHouse) -> None:
    opal, groups = signed_in(house, "opal", Role.OPERATOR), house.kit.connections.groups
    typed = {f"was-{key}": "" for key in LIMITS} | dict.fromkeys(LIMITS, "")
    typed |= {"concurrency": "four", "queueAgeSeconds": "60"}
    refused = opal.post("/groups/typed", token=opal.token(), **typed, **REASON)
    assert refused.status_code == 422
    assert "concurrency: write a whole number" in alert_in(refused.text)
    form = form_of(refused.text, "/groups/typed")
    assert form | typed | REASON == form
    # Another person meanwhile: what the form has shown before still counts.
    groups.set("typed", {"queueAgeSeconds": 30}, actor=LOCAL, reason="a test")
    refused = opal.post("/groups/typed", **form)
    assert form_of(refused.text, "/groups/typed")["was-queueAgeSeconds"] == ""
    moved = opal.post("/groups/typed", **(form | {"concurrency": "4"}))
    assert moved.status_code == 409
    assert groups.list()["typed"].values == {"queueAgeSeconds": 30}
    # A missing reason, too.
    form = form_of(moved.text, "/groups/typed") | {"reason": ""}
    refused = opal.post("/groups/typed", **form)
    assert form_of(refused.text, "/groups/typed")["concurrency"] == "4"


def alert_in(page: str) -> str:
    return page.partition('role="alert">')[2].partition("<")[0]


def test_of_two_changes_of_a_group_at_once_one_is_told(
    house: ApiHouse, monkeypatch: pytest.MonkeyPatch
) -> None:
    opal, groups = signed_in(house, "opal", Role.OPERATOR), house.kit.connections.groups
    look, token = groups_page._decided, opal.token()

    def then_another(services: Services, name: str) -> NodeGroup:
        """Between the look of the page and its write, another person writes."""
        found = look(services, name)
        monkeypatch.setattr(groups_page, "_decided", look)
        groups.set(name, {"concurrency": 3}, actor=LOCAL, reason="a test")
        return found

    monkeypatch.setattr(groups_page, "_decided", then_another)
    form = {"was-concurrency": "", "concurrency": "5", **REASON}
    lost = opal.post("/groups/raced", token=token, **form)
    assert groups.list()["raced"].values == {"concurrency": 3}
    assert lost.status_code == 409
    assert "concurrency was changed after you opened this form" in lost.text
    assert [each.reason for each in noted(house, "set group", "raced")] == ["a test"]


def form_of(page: str, action: str) -> dict[str, str]:
    """What a browser sends if the form is sent as it is."""
    form = page.partition(f'method="post" action="/console{action}"')[2].partition("</form>")[0]
    found = {}
    for tag in re.findall(r"<input[^>]*>", form):
        name, value = (re.search(rf'{each}="([^"]*)"', tag) for each in (" name", " value"))
        if name is not None:
            found[name[1]] = unescape(value[1]) if value is not None else ""
    for name, text in re.findall(
        r'<textarea[^>]* name="(\w+)"[^>]*>\n?(.*?)</textarea>', form, re.S
    ):
        found[name] = unescape(text)
    return found


def test_a_mapping_is_compared_committed_and_put_into_use(strict: ApiHouse) -> None:
    ann, vic = signed_in(strict, "ann", Role.ADMIN), signed_in(strict, "vic", Role.VIEWER)
    token, kit = ann.token(), strict.kit
    one, two = Surroundings(kit).mapping("codes").values()
    named = Pipeline("coded").step("util/map-fields", params={"mapping": "codes"})
    before = kit.connections.pipelines.apply(named.build()).version
    kit.connections.pipelines.commit("coded", before, "first")
    kit.connections.pipelines.use("coded", before)
    assert 'href="/console/mappings/codes"' in vic.get("/mappings").text
    shown = unescape(vic.get("/mappings/codes").text)
    assert one in shown and two in shown and 'href="/console/pipelines/coded"' in shown
    diff = unescape(vic.get(f"/mappings/codes/diff?from={one}&to={two}").text)
    assert "-   iban: account<" in diff and "+   iban: account.iban<" in diff
    assert re.search(DIFF_BEGINS, diff)
    assert f"datp mappings show codes --version {one}" in diff
    half = vic.http.get("/console/mappings/codes/diff", params={"from": "x; touch /tmp/x"}).text
    assert "Choose two versions" in half and "touch" not in half
    base = f"/mappings/codes/versions/{two}"
    refused = ann.post(f"{base}/commit", token=token).headers["location"]
    assert "comment" in said(ann, refused), "not without a comment"
    ann.post(f"{base}/commit", token=token, comment="iban is inside now")
    [committed] = noted(strict, "mapping.commit", "codes")[:1]
    assert (committed.reason, committed.actor[:4]) == ("iban is inside now", "key ")
    assert "coded" in ann.get(f"{base}/use").text, "the page names what will change"
    ann.post(f"{base}/use", token=token)
    assert noted(strict, "mapping.use", "codes")[0].details["version"] == one, "without a reason"
    used = said(ann, ann.post(f"{base}/use", token=token, **REASON).headers["location"])
    number = re.search(r"coded waits for approval (\d+)", used)
    assert number is not None and kit.connections.pipelines.show("coded").info.version == before
    bob = signed_in(strict, "bob", Role.ADMIN)
    bob.post(f"/approvals/{number[1]}/approve", token=bob.token())
    assert kit.connections.pipelines.show("coded").info.version != before
    assert vic.get("/mappings/none").status_code == 404
    assert vic.get("/mappings/codes?version=ffff").status_code == 404


def test_a_switch_and_a_wake_take_a_reason_that_the_audit_keeps(house: ApiHouse) -> None:
    opal, tx_id = signed_in(house, "opal", Role.OPERATOR), house.kit.submit("nap", {}, owner="r")
    token, place = opal.token(), f"/transactions/{tx_id}"
    switch = {"token": token, "name": "kyc", "value": "true"}
    for path, form in ((f"{place}/switch", switch), (f"{place}/wake", {"token": token})):
        refused = opal.post(path, **form)
        assert "reason" in said(opal, refused.headers["location"]), path
    chain = AuditChain(house.kit.connections.engine)
    assert chain.actions(subject=tx_id) == [], "not without a reason"
    opal.post(f"{place}/switch", **switch, **REASON)
    opal.post(f"{place}/wake", token=token, **REASON)
    did = [(each.action, each.reason) for each in chain.actions(subject=tx_id)]
    assert did == [
        ("transaction.wake", "ticket 12"),
        ("transaction.switch", "kyc = True: ticket 12"),
    ]


def test_any_id_in_the_search_leads_to_its_page(house: ApiHouse) -> None:
    opal, vic = signed_in(house, "opal", Role.OPERATOR), signed_in(house, "vic", Role.VIEWER)
    around, kit = Surroundings(house.kit), house.kit
    batch, endpoint = around.parked_batch("found", "page 77"), around.endpoint()
    around.mapping("found-codes")
    around.node("worker-7@node", ["t/echo"], group="found-group")
    kit.connections.groups.set("told-group", {"concurrency": 1}, actor=LOCAL, reason="a test")
    tx_id = kit.submit("echo", {}, owner="found", webhook="https://shop.example.com/hook")
    [delivery] = kit.connections.webhooks.store.deliveries(tx_id=tx_id)
    key = house.new_key("found", Role.VIEWER).split("_")[1]
    for text, place in {
        batch: f"ledgers/found/{batch}",
        endpoint: f"endpoints/{endpoint}",
        "found-codes": "mappings/found-codes",
        "found": "ledgers?service=found",
        "found-group": "groups/found-group",
        "worker-7@node": "groups/found-group",
        "told-group": "groups/told-group",
        delivery.id: f"webhooks/{delivery.id}",
        key: f"audit?keyId={key}",
        tx_id: f"transactions/{tx_id}",
    }.items():
        answer = opal.http.get("/console/search", params={"q": text})
        assert answer.headers.get("location") == f"/console/{place}", text
        assert opal.http.get(f"/console/{place}").status_code == 200, place
    # One who may not read the audit is not led there.
    assert "API key of found" in vic.http.get("/console/search", params={"q": key}).text


def test_what_rows_are_about_is_a_link_to_its_page() -> None:
    for what, subject, page in (
        ("transaction.unmask", "t00-" + "0" * 32, "/transactions/t00-" + "0" * 32),
        *(("batch.resolve", "saw/ab", "/ledgers/saw/ab"), ("batch.submit", "saw", "")),
        *(
            ("ledger-batch-parked", "a b/c", "/ledgers/a%20b/c"),
            ("node-lost", "kyc", "/groups/kyc"),
        ),
        *(("approval.ask", "approval 7", "/approvals/7"), ("approval.ask", "approval x", "")),
        *(("pipeline.use", "pay", "/pipelines/pay"), ("mapping.use", "m", "/mappings/m")),
        *(("set group", "kyc", "/groups/kyc"), ("key.create", "ab", "/audit?keyId=ab")),
        *(("webhook-endpoint.delete", "ep_1", ""), ("webhook.rotate-secret", "shop", "")),
        *(("odd", "javascript:alert(1)", ""), ("service.add", "a&b", "/ledgers?service=a%26b")),
    ):
        assert page_of_subject(what, subject) == page, what
    assert page_or_search("odd", "a b").startswith("/search?q=a%20b")


def test_people_count_steps_from_1_and_read_words() -> None:
    assert place_words("payout/1") == "step 2 of payout"
    assert [place_words(each) for each in ("payout", "", "a/b", "/1")] == [
        "payout",
        "",
        "a/b",
        "/1",
    ]
    deep = ("3", "1.0", "1.0.4", "x")
    assert [path_words(each) for each in deep] == [
        "step 4",
        "step 1 of the child of step 2",
        "step 5 of the child of step 1 of the child of step 2",
        "step x",
    ]
    assert all(action_words(each) != each for each in (*ACTIONS, STEP))
    assert told_words("final") == "how it ended"


def test_another_one_is_started_with_an_edited_input(house: ApiHouse) -> None:
    admin = signed_in(house, "adam", Role.ADMIN)
    tx_id = house.kit.submit("echo", {"iban": "DE02", "amount": 5}, owner="shop")
    place = f"/transactions/{tx_id}"
    assert "/try/edit" not in admin.get(place).text, "its input is masked"
    shown = admin.post(f"{place}/unmask", token=admin.token(), **REASON).text
    form = re.search(r'action="/console/try/edit".*?<textarea[^>]*>\n(.*?)</textarea>', shown, re.S)
    assert form is not None
    given = {"pipeline": "echo", "input": unescape(form[1])}
    edit = admin.post("/try/edit", token=admin.token(), **given)
    assert edit.status_code == 200 and '"iban": "DE02"' in unescape(edit.text)
    given["input"] = given["input"].replace("DE02", "DE03")
    made = admin.post("/try", token=admin.token(), **given).headers["location"].rpartition("/")[2]
    assert made != tx_id
    assert house.kit.finish(made).output == {"echo": {"iban": "DE03", "amount": 5}}


def test_another_one_is_started_with_the_largest_input_that_is_accepted(house: ApiHouse) -> None:
    admin, bytes_max = signed_in(house, "adam", Role.ADMIN), house.kit.settings.input_bytes_max
    # Three bytes in a form for each one; and on a line each, several times as many.
    for data in ({"a": "{:}" * (bytes_max // 3 - 9)}, {"a": [1] * ((bytes_max - 20) // 2)}):
        assert len(json.dumps(data, separators=(",", ":"))) > bytes_max * 0.95
        tx_id = house.kit.submit("nap", data, owner="shop")
        place = f"/transactions/{tx_id}"
        shown = admin.post(f"{place}/unmask", token=admin.token(), **REASON).text
        edit = admin.post("/try/edit", **form_of(shown, "/try/edit"))
        assert edit.status_code == 200, edit.text[:2_000]
        form = form_of(edit.text, "/try")
        form["input"] = form["input"].replace('"a"', '"b"')
        made = admin.post("/try", **form)
        assert made.status_code == 303, made.status_code
        tx_id = made.headers["location"].rpartition("/")[2]
        assert house.kit.status(tx_id).input == {"b": data["a"]}
    # Other forms do not get larger.
    large = admin.post("/drafts/check", token=admin.token(), yaml="#" * 400_000)
    assert large.status_code == 413


CASES_YAML = """
pipeline: checked
steps:
  - {type: util/fixed-reply, params: {output: {paid: true}}}
tests:
  - {name: pays, input: {}, expect: {status: success, output: {paid: true}}}
  - {name: does not, input: {}, expect: {status: failed}}
"""


def test_stored_cases_are_run_and_each_result_is_shown(
    house: ApiHouse, datp_servers: Servers, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A database and keys of their own, on servers that run already.
    monkeypatch.setenv("DATP_TEST_REDIS_URL", datp_servers.redis_url)
    monkeypatch.setenv("DATP_TEST_DATABASE_URL", datp_servers.database_url)
    # In use beside it: a pipeline that names a mapping, which the servers of a case do not hold.
    Surroundings(house.kit).mapping("case-codes")
    house.kit.use(
        Pipeline("maps").step("util/map-fields", params={"mapping": "case-codes"}).build()
    )
    admin, opal = signed_in(house, "adam", Role.ADMIN), signed_in(house, "opal", Role.OPERATOR)
    token = admin.token()
    stored = admin.post("/drafts", token=token, yaml=CASES_YAML).headers["location"]
    place = f"/pipelines/checked/versions/{stored.rpartition('=')[2]}/test"
    assert "needs a stand-in" in unescape(admin.get(place).text)
    assert opal.post(place, token=opal.token(), **REASON).status_code == 403
    assert admin.post(place, token=token).headers["location"] == f"/console{place}"
    assert noted(house, "pipeline.test", "checked") == [], "not without a reason"
    before = house.kit.connections.pipelines.show("checked").info.state
    done = admin.post(place, token=token, **REASON)
    shown = " ".join(unescape(re.sub(r"<[^>]+>", " ", done.text)).split())
    assert "1 passed, 1 failed" in shown
    assert "pays: expects success passed" in shown
    assert "does not: expects failed failed status is success, not failed" in shown
    [kept] = noted(house, "pipeline.test", "checked")
    assert (kept.reason, kept.details["cases"]) == ("ticket 12", ["pays", "does not"])
    assert house.kit.connections.pipelines.show("checked").info.state == before


def test_cases_that_cannot_be_run_say_why(house: ApiHouse, monkeypatch: pytest.MonkeyPatch) -> None:
    admin = signed_in(house, "adam", Role.ADMIN)
    stored = admin.post("/drafts", token=admin.token(), yaml=CASES_YAML).headers["location"]
    place = f"/pipelines/checked/versions/{stored.rpartition('=')[2]}/test"
    monkeypatch.setattr("datp_tasks.api.console.case_runs.PROGRAM", "datp_tasks.no_such_module")
    answer = admin.post(place, token=admin.token(), **REASON)
    assert "could not be run" in said(admin, answer.headers["location"])
    monkeypatch.setattr("datp_tasks.api.console.case_runs.PROGRAM", "http.server")
    monkeypatch.setattr("datp_tasks.api.console.case_runs.RUN_S", 0.3)
    answer = admin.post(place, token=admin.token(), **REASON)
    assert "not over after" in said(admin, answer.headers["location"])


def test_a_command_to_copy_is_safe_to_paste(house: ApiHouse) -> None:
    """Filters come with a link, and subjects from elsewhere: neither may run in a shell."""
    opal, evil = signed_in(house, "opal", Role.OPERATOR), "x'; touch /tmp/x; '"
    alerts = Alerts(house.kit.connections.engine, house.kit.connections.clock)
    alerts.raise_alert("odd", evil, "something")
    [alert] = [each for each in alerts.open_alerts("odd") if each.subject == evil]
    pages = (
        opal.http.get("/console/bulk/cancel", params={"owner": evil}),
        opal.get(f"/alerts/{alert.id}/close"),
    )
    for page in pages:
        command = re.search(r'data-copy="([^"]*)"', page.text)
        assert command is not None
        words = shlex.split(unescape(command[1]))
        assert evil in words or f"owner={evil}" in words
    with_time = opal.http.get("/console/bulk/cancel", params={"from": "2027-01-01", "owner": "a"})
    assert "datp bulk" not in with_time.text, "the command line does not know this filter"


def test_a_number_that_no_approval_has_is_not_found(house: ApiHouse) -> None:
    guest = signed_in(house, "vic", Role.VIEWER)
    for number in ("0", "9" * 19, "0" * 19 + "1" + "9" * 30, "1x", "%D9%A1"):
        assert guest.get(f"/approvals/{number}").status_code == 404, number


def test_now_says_that_more_wait_than_it_shows(
    house: ApiHouse, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("datp_tasks.api.console.now_page.ALERTS_MAX", 0)
    alerts = Alerts(house.kit.connections.engine, house.kit.connections.clock)
    alerts.raise_alert("odd", "one more", "something")
    shown = signed_in(house, "vic", Role.VIEWER).get("/now").text
    assert re.search(r'alerts</div><div class="value">0\+', shown)
