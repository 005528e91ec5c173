"""What the command line can do is possible over HTTP: pipelines, groups, keys, bulk, explaining."""

from __future__ import annotations

from typing import Any

import httpx
import pytest

from datp_tasks import Pipeline
from datp_tasks.api.console.case_runs import CaseRuns, CasesBusy, CasesNotRun, ShownCase
from datp_tasks.model.actor import Role
from datp_tasks.model.grants import Grants
from tests.support.api_house import ApiHouse

YAML = """
pipeline: typed
nodeGroup: master
steps:
  - type: util/fixed-reply
    params: {output: {said: "%s"}}
"""


def kind_of(response: httpx.Response) -> str:
    return str(response.json()["type"]).rpartition(":")[2]


def actions(house: ApiHouse, ops: httpx.Client, subject: str) -> list[Any]:
    found = ops.get("/v1/audit/actions", params={"subject": subject}).json()["actions"]
    return [each["action"] for each in found]


# Pipelines.


def applied(ops: httpx.Client, said: str) -> dict[str, Any]:
    response = ops.post("/v1/pipelines", json={"yaml": YAML % said})
    assert response.status_code in (200, 201), response.text
    found: dict[str, Any] = response.json()
    return found


def test_a_pipeline_goes_from_text_to_committed(ops: httpx.Client, house: ApiHouse) -> None:
    made = applied(ops, "first")
    assert (made["name"], made["new"], made["state"]) == ("typed", True, "draft")
    again = ops.post("/v1/pipelines", json={"yaml": YAML % "first"})
    assert again.status_code == 200 and again.json()["new"] is False
    place = f"/v1/pipelines/typed/versions/{made['version']}"
    committed = ops.post(f"{place}/commit", json={"comment": "the first one"}).json()
    assert (committed["state"], committed["comment"]) == ("committed", "the first one")
    shown = ops.get(place).json()
    assert shown["definition"]["steps"][0]["params"] == {"output": {"said": "first"}}
    assert "pipeline.commit" in actions(house, ops, "typed")


def test_an_exported_version_is_imported_and_an_altered_one_refused(ops: httpx.Client) -> None:
    made = applied(ops, "exported")
    document = ops.get(f"/v1/pipelines/typed/versions/{made['version']}/export").json()
    assert ops.post("/v1/pipelines/import", json=document).json()["state"] == "committed"
    document["definition"]["steps"][0]["params"]["output"]["said"] = "altered"
    refused = ops.post("/v1/pipelines/import", json=document)
    assert refused.status_code == 422 and "altered" in refused.json()["detail"]


def test_a_clone_is_a_draft_that_can_be_deleted(ops: httpx.Client) -> None:
    made = applied(ops, "cloned")
    wanted = {"name": "typed-two", "version": made["version"]}
    clone = ops.post("/v1/pipelines/typed/clone", json=wanted)
    assert (clone.status_code, clone.json()["name"], clone.json()["state"]) == (
        *(201, "typed-two", "draft"),
    )
    place = f"/v1/pipelines/typed-two/versions/{clone.json()['version']}"
    assert ops.delete(place).status_code == 200
    assert ops.get("/v1/pipelines/typed-two").status_code == 404
    ops.post(f"/v1/pipelines/typed/versions/{made['version']}/commit", json={"comment": "kept"})
    kept = ops.delete(f"/v1/pipelines/typed/versions/{made['version']}")
    assert kept.status_code == 409 and kind_of(kept) == "version-kept"


def test_two_versions_are_compared(ops: httpx.Client) -> None:
    one, other = applied(ops, "one"), applied(ops, "other")
    params = {"from": one["version"], "to": other["version"]}
    diff = ops.get("/v1/pipelines/typed/diff", params=params).json()["diff"]
    assert "-" in diff and "said: other" in diff
    same = {"from": one["version"], "to": one["version"]}
    assert ops.get("/v1/pipelines/typed/diff", params=same).json()["diff"] == ""


def test_a_check_names_every_mistake_and_stores_nothing(ops: httpx.Client) -> None:
    wrong = {"pipeline": "wrong", "nodeGroup": "master", "steps": [], "colour": "red"}
    found = ops.post("/v1/pipelines/check", json={"definition": wrong}).json()
    assert found["valid"] is False and len(found["mistakes"]) >= 2
    good = ops.post("/v1/pipelines/check", json={"yaml": YAML % "unseen"}).json()
    assert good["valid"] is True and good["name"] == "typed"
    versions = ops.get("/v1/pipelines/typed").json()["versions"]
    assert good["version"] not in {each["version"] for each in versions}


@pytest.mark.parametrize(
    "body",
    [{}, {"definition": {}, "yaml": "a: b"}, {"yaml": "a: [1"}, {"yaml": "---\na: 1\n---\nb: 2\n"}],
)
def test_a_text_that_is_no_pipeline_is_a_sentence(ops: httpx.Client, body: dict[str, Any]) -> None:
    refused = ops.post("/v1/pipelines", json=body)
    assert refused.status_code == 422
    assert kind_of(refused) in ("request-invalid", "pipeline-invalid")


# Groups.


def test_a_group_is_changed_and_goes_back_to_its_default(ops: httpx.Client) -> None:
    changed = ops.patch(
        "/v1/groups/night", json={"values": {"concurrency": 3}, "reason": "a busy night"}
    ).json()
    assert changed["values"] == {"concurrency": 3} and changed["stopped"] is False
    assert "night" in {each["name"] for each in ops.get("/v1/groups").json()["groups"]}
    back = ops.patch("/v1/groups/night", json={"values": {"concurrency": None}}).json()
    assert back["values"] == {}


def test_a_value_that_a_group_does_not_have_is_refused(ops: httpx.Client) -> None:
    refused = ops.patch("/v1/groups/night", json={"values": {"colour": 3}})
    assert refused.status_code == 422 and kind_of(refused) == "group-invalid"


# Keys.


def test_a_key_is_made_used_and_revoked(ops: httpx.Client, house: ApiHouse) -> None:
    owner = house.new_owner("made")
    wanted = {"owner": owner, "grants": ["read"], "name": "ci", "expiresInSeconds": 3_600}
    made = ops.post("/v1/keys", json=wanted)
    assert made.status_code == 201
    key = made.json()
    client = house.client(key=key["key"])
    assert client.get("/v1/transactions").status_code == 200
    refused = client.post("/v1/transactions", json={"pipeline": "echo", "input": {}})
    assert refused.status_code == 403
    listed = client.get("/v1/keys").json()["keys"]
    assert [each["id"] for each in listed] == [key["id"]] and "key" not in listed[0]
    assert client.post(f"/v1/keys/{key['id']}/revoke").json()["revokedAt"] is not None
    assert "key.revoke" in actions(house, ops, key["id"])


def test_a_client_sees_and_ends_no_other_key(acme: httpx.Client, house: ApiHouse) -> None:
    other = house.new_owner("other")
    key_id = house.new_key(other).split("_")[1]
    assert acme.get("/v1/keys", params={"owner": other}).status_code == 403
    assert key_id not in {each["id"] for each in acme.get("/v1/keys").json()["keys"]}
    assert acme.post(f"/v1/keys/{key_id}/revoke").status_code == 403


@pytest.mark.parametrize(
    "wanted", [{"owner": "a b"}, {"owner": "x", "grants": ["fly"]}, {"owner": "x", "role": "king"}]
)
def test_a_key_that_cannot_be_is_refused(ops: httpx.Client, wanted: dict[str, Any]) -> None:
    assert ops.post("/v1/keys", json=wanted).status_code == 422


def test_limits_of_an_owner_are_set_and_reset(ops: httpx.Client) -> None:
    place = "/v1/owners/limited-one/limits"
    assert ops.put(place, json={"burstMax": 7}).json()["burstMax"] == 7
    assert ops.get(place).json() == {
        "owner": "limited-one",
        "requestsPerSecond": None,
        "burstMax": 7,
        "inFlightMax": None,
    }
    assert ops.put(place, json={}).json()["burstMax"] is None


# Many at once.


@pytest.fixture
def sleepers(house: ApiHouse) -> tuple[str, list[str]]:
    owner = house.new_owner("sleepers")
    made = [house.kit.client.submit("nap", {"n": n}, owner=owner).tx_id for n in range(3)]
    return owner, made


def test_what_the_preview_shows_is_acted_on(
    ops: httpx.Client, house: ApiHouse, sleepers: tuple[str, list[str]]
) -> None:
    owner, made = sleepers
    chosen = {"action": "cancel", "where": {"owner": owner}}
    preview = ops.post("/v1/bulk-actions/preview", json=chosen).json()
    assert (preview["count"], preview["more"]) == (3, False)
    assert {each["txId"] for each in preview["sample"]} == set(made)
    sure = {"expectedCount": 3, "selection": preview["selection"], "reason": "a wrong file"}
    acted = ops.post("/v1/bulk-actions", json={**chosen, **sure}).json()
    assert (acted["done"], acted["failed"]) == (3, 0)
    assert {str(house.kit.status(each).status) for each in made} == {"cancelled"}


def test_nothing_is_done_if_another_number_matches(
    ops: httpx.Client, house: ApiHouse, sleepers: tuple[str, list[str]]
) -> None:
    owner, made = sleepers
    wanted = {"action": "cancel", "where": {"owner": owner}, "reason": "a wrong file"}
    seen = ops.post(
        "/v1/bulk-actions/preview", json={"action": "cancel", "where": {"owner": owner}}
    ).json()["selection"]
    few = ops.post("/v1/bulk-actions", json={**wanted, "expectedCount": 2, "selection": seen})
    assert few.status_code == 409 and kind_of(few) == "subject-moved"
    # One has ended and another has come: as many as before, and not the same.
    house.kit.client.cancel(made[0], "gone")
    made[0] = house.kit.client.submit("nap", {"n": 4}, owner=owner).tx_id
    other = ops.post("/v1/bulk-actions", json={**wanted, "expectedCount": 3, "selection": seen})
    assert other.status_code == 409 and kind_of(other) == "subject-moved"
    assert {str(house.kit.status(each).status) for each in made} == {"sleeping"}


def test_all_transactions_are_never_meant(ops: httpx.Client) -> None:
    refused = ops.post("/v1/bulk-actions/preview", json={"action": "wake", "where": {}})
    assert refused.status_code == 422


# Explaining.


def test_why_tells_what_a_sleeper_waits_for(
    ops: httpx.Client, sleepers: tuple[str, list[str]]
) -> None:
    found = ops.get(f"/v1/transactions/{sleepers[1][0]}/why").json()
    assert found["status"] == "sleeping" and "go" in found["answer"]


def test_a_replay_fits(ops: httpx.Client, sleepers: tuple[str, list[str]]) -> None:
    found = ops.get(f"/v1/transactions/{sleepers[1][0]}/replay").json()
    assert (found["fits"], found["faults"], found["status"]) == (True, [], "sleeping")


def test_why_and_replay_of_what_does_not_exist_are_404(ops: httpx.Client) -> None:
    for what in ("why", "replay"):
        assert ops.get(f"/v1/transactions/t00-{'0' * 32}/{what}").status_code == 404


def test_the_doctor_and_the_timeouts_answer(house: ApiHouse) -> None:
    viewer = house.client(house.new_owner("viewer"), Role.VIEWER)
    assert isinstance(viewer.get("/v1/doctor").json()["healthy"], bool)
    assert viewer.get("/v1/timeouts", params={"limit": 1}).json()["behind"] is False
    found = viewer.get("/v1/in-flight", params={"limit": 1}).json()
    assert (set(found), found["inFlight"]) == ({"now", "inFlight"}, [])


def test_a_key_with_an_empty_list_of_grants_may_do_nothing(
    house: ApiHouse, ops: httpx.Client
) -> None:
    """It is not the same as no list, which is what is safe by default."""
    made = ops.post("/v1/keys", json={"owner": "acme", "grants": []}).json()
    assert made["grants"] == []
    client = house.client(key=made["key"])
    assert client.get("/v1/transactions").status_code == 403
    wanted = {"pipeline": "echo", "input": {}}
    assert client.post("/v1/transactions", json=wanted).status_code == 403


# Retention, secrets and the key ring.


def test_how_long_an_owner_is_kept_is_set_and_taken_back(
    ops: httpx.Client, house: ApiHouse
) -> None:
    place = "/v1/retention-rules/owner/acme-kept"
    assert ops.delete(place, params={"reason": "over"}).status_code == 404
    wanted = {"days": 400, "reason": "contract 7"}
    rule = {"kind": "owner", "name": "acme-kept", "days": 400}
    assert ops.put(place, json=wanted).json() == rule
    viewer = house.client(house.new_owner("viewer"), Role.VIEWER)
    assert viewer.get("/v1/retention-rules").json()["rules"] == [rule]
    removed = ops.delete(place, params={"reason": "over"})
    assert (removed.status_code, removed.json()["removed"]) == (200, True)
    assert ops.get("/v1/retention-rules").json()["rules"] == []
    assert actions(house, ops, "owner acme-kept") == ["retention.remove", "retention.set"]


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("owner/acme", {"days": 0, "reason": "x"}),
        ("owner/acme", {"days": 36_501, "reason": "x"}),
        ("owner/acme", {"days": 1}),
        ("owner/acme", {"days": "1", "reason": "x"}),
        ("table/acme", {"days": 1, "reason": "x"}),
        ("owner/%00", {"days": 1, "reason": "x"}),
        (f"owner/{'n' * 201}", {"days": 1, "reason": "x"}),
    ],
)
def test_a_rule_that_cannot_be_is_refused(ops: httpx.Client, path: str, body: Any) -> None:
    assert ops.put(f"/v1/retention-rules/{path}", json=body).status_code in (400, 422)
    assert ops.get("/v1/retention-rules").json()["rules"] == []


# Test cases, and the secret of an owner.

CASES = """
pipeline: cased
steps: [{type: t/echo, name: pay}]
tests:
  - {name: stands in, stubs: {pay: {output: {}}}}
  - {name: second, stubs: {pay: {output: {}}}}
"""


def test_test_cases_of_a_version_are_run_and_told_one_by_one(
    ops: httpx.Client, house: ApiHouse, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[list[str]] = []

    async def run(_: CaseRuns, definitions: Any, cases: Any, note: Any) -> Any:
        """In place of the process; tests of the console run it."""
        await note()
        asked.append(list(cases))
        return {each: ShownCase("failed", ["no"] * (each == "second")) for each in cases}

    monkeypatch.setattr(CaseRuns, "run", run)
    made = ops.post("/v1/pipelines", json={"yaml": CASES}).json()
    place = f"/v1/pipelines/cased/versions/{made['version']}/test"
    found = ops.post(place).json()
    assert (found["passed"], found["failed"], found["version"]) == (1, 1, made["version"])
    assert found["cases"][1] == {
        "case": "second",
        "passed": False,
        "status": "failed",
        "mistakes": ["no"],
    }
    ops.post(place, json={"cases": ["second"], "reason": "release 12"})
    assert asked == [["stands in", "second"], ["second"]]
    assert actions(house, ops, "cased")[:2] == ["pipeline.test"] * 2
    unknown = ops.post(place, json={"cases": ["third"]})
    assert unknown.status_code == 422 and "no case 'third'" in unknown.json()["detail"]
    none = applied(ops, "without cases")
    bare = ops.post(f"/v1/pipelines/typed/versions/{none['version']}/test")
    assert bare.status_code == 422 and "no test cases" in bare.json()["detail"]
    assert ops.post("/v1/pipelines/typed/versions/none/test").status_code == 404

    async def busy(*_: Any) -> None:
        raise CasesBusy("Test cases are being run already; wait until they are over.")

    async def broken(*_: Any) -> None:
        raise CasesNotRun("The test cases could not be run: no answer")

    for outcome, kind, retryable in ((busy, "cases-busy", True), (broken, "cases-not-run", False)):
        monkeypatch.setattr(CaseRuns, "run", outcome)
        refused = ops.post(place)
        assert (refused.status_code, kind_of(refused)) == (409, kind)
        assert refused.json()["retryable"] is retryable
    real = ops.post("/v1/pipelines", json={"yaml": CASES.replace("stubs: {pay", "stubs: {x")})
    place = f"/v1/pipelines/cased/versions/{real.json()['version']}/test"
    assert "no stand-in for t/echo" in ops.post(place).json()["detail"]


def test_an_owner_gets_a_new_secret_for_its_urls_and_it_signs(
    ops: httpx.Client, house: ApiHouse
) -> None:
    owner = house.new_owner("signs")
    client, other = house.client(owner), house.client(house.new_owner("other"))
    made = client.post("/v1/webhook-secret/rotate", json={"overlapSeconds": 60})
    assert made.status_code == 200, made.text
    secret = made.json()["secret"]
    store = house.services.webhooks.store
    assert store.signing_secrets({owner})[owner][0] == secret
    second = ops.post("/v1/webhook-secret/rotate", json={"owner": owner}).json()
    assert second["owner"] == owner and second["secret"] != secret
    shown = client.get("/v1/webhook-secret")
    assert len(shown.json()["secrets"]) == 2 and shown.json()["secrets"][0]["retiredAt"] is None
    assert secret not in shown.text and second["secret"] not in shown.text
    refused = other.get("/v1/webhook-secret", params={"owner": owner})
    assert (refused.status_code, kind_of(refused)) == (403, "forbidden")
    theirs = other.post("/v1/webhook-secret/rotate", json={"owner": owner})
    assert (theirs.status_code, kind_of(theirs)) == (403, "forbidden")
    assert other.get("/v1/webhook-secret").json()["secrets"] == []
    assert store.signing_secrets({owner})[owner][0] == second["secret"]
    reader = house.client(key=house.new_key(owner, grants=Grants.parse(("read",))))
    assert reader.post("/v1/webhook-secret/rotate").status_code == 403


# Audits and erasures.


def test_an_audit_is_started_and_says_how_far_it_is(ops: httpx.Client, house: ApiHouse) -> None:
    house.kit.client.submit("echo", {}, owner="audited")
    started = ops.post("/v1/audits", json={"everything": True})
    assert (started.status_code, started.json()["state"]) == (202, "running"), started.text
    place = started.headers["Location"]
    assert place == f"/v1/audits/{started.json()['id']}"
    second = ops.post("/v1/audits", json={})
    assert (second.status_code, kind_of(second)) == (409, "run-under-way")
    assert second.json()["retryable"] is True
    house.kit.run_job("operator_runs")
    done = ops.get(place).json()
    assert (done["state"], done["audited"], done["wrong"]) == ("done", done["total"], 0)
    assert done["sample"] is None and done["endedAt"]
    listed = ops.get("/v1/audits", params={"limit": 1}).json()
    assert [each["id"] for each in listed["audits"]] == [done["id"]]
    assert ops.get("/v1/audits/4711").status_code == 404
    # One kind is not found as the other.
    assert ops.get(f"/v1/erasures/{done['id']}").status_code == 404
    both = ops.post("/v1/audits", json={"everything": True, "sample": 3})
    assert both.status_code == 422 and both.json()["errors"][0]["pointer"] == "#/body/sample"


def test_the_same_idempotency_key_starts_one_audit(ops: httpx.Client, house: ApiHouse) -> None:
    headers = {"Idempotency-Key": house.new_owner("audit")}
    first = ops.post("/v1/audits", json={"sample": 1}, headers=headers)
    again = ops.post("/v1/audits", json={"sample": 1}, headers=headers)
    assert (first.status_code, again.status_code) == (202, 202)
    assert first.json()["id"] == again.json()["id"]
    house.kit.run_job("operator_runs")


def test_payloads_are_erased_over_http_and_the_value_is_in_no_answer(
    ops: httpx.Client, house: ApiHouse
) -> None:
    owner = house.new_owner("erased")
    tx_id = house.kit.client.submit("echo", {"customer": "xaver-q"}, owner=owner).tx_id
    house.kit.advance(seconds=61)
    house.kit.run_job("archiver")
    longest = {"owner": owner, "externalId": "o" * 255}
    of_many = {"subject": {"pointer": "/customer", "value": "x" * 1_000}}
    for none in (longest, of_many):
        assert ops.post("/v1/erasures/preview", json=none).json() == {"count": 0, "more": False}
    chosen = {"subject": {"pointer": "/customer", "value": "xaver-q"}}
    counted = ops.post("/v1/erasures/preview", json=chosen)
    assert counted.json() == {"count": 1, "more": False}
    named = ops.post("/v1/erasures", json={**chosen, "reason": "xaver-q asked"})
    assert (named.status_code, kind_of(named)) == (422, "filter-invalid")
    started = ops.post("/v1/erasures", json={**chosen, "reason": "request 9"})
    assert started.status_code == 202, started.text
    house.kit.run_job("operator_runs")
    done = ops.get(started.headers["Location"])
    shown = done.json()
    assert (shown["state"], shown["erased"], shown["subject"]) == ("done", 1, "/customer")
    assert "xaver-q" not in done.text + started.text + ops.get("/v1/erasures").text
    assert ops.get(f"/v1/transactions/{tx_id}").json()["input"] == {}
    assert actions(house, ops, f"erasure {shown['id']}") == ["erase.start"]


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"externalId": "o1"},
        {"owner": ""},
        {"subject": {"pointer": "customer", "value": "a"}},
        {"subject": {"pointer": "/a=b", "value": "a"}},
        {"subject": {"pointer": "/a", "value": ""}},
        {"subject": {"pointer": "/" * 40, "value": "a"}},
        {"subject": "/customer=ann"},
        {"owner": "a", "externalId": "o1", "subject": {"pointer": "/a", "value": "b"}},
    ],
)
def test_an_erasure_that_names_nothing_clear_is_refused(ops: httpx.Client, body: Any) -> None:
    for path, more in (("/preview", {}), ("", {"reason": "r"})):
        refused = ops.post(f"/v1/erasures{path}", json={**body, **more})
        assert refused.status_code == 422, refused.text
    assert ops.post("/v1/erasures", json={"owner": "acme"}).status_code == 422


def test_secrets_are_named_and_never_shown(ops: httpx.Client, house: ApiHouse) -> None:
    said = []
    for number, new in ((1, True), (2, False)):
        answer = ops.put("/v1/secrets/BANK", json={"value": f"tok-zanzibar-{number}"})
        assert answer.json() == {"name": "BANK", "new": new}, answer.text
        said.append(answer.text)
    assert house.kit.connections.seals.secrets.value("BANK") == "tok-zanzibar-2"
    listed = ops.get("/v1/secrets")
    [found] = listed.json()["secrets"]
    assert (found["name"], set(found)) == ("BANK", {"name", "key", "changedAt"})
    ring = ops.get("/v1/key-ring")
    [active] = [each for each in ring.json()["keys"] if each["active"]]
    assert active["key"] == found["key"] and active["known"] and active["rows"] >= 1
    noted = ops.get("/v1/audit/actions", params={"subject": "BANK"})
    gone = ops.delete("/v1/secrets/BANK")
    assert gone.json() == {"name": "BANK", "removed": True}
    assert ops.delete("/v1/secrets/BANK").status_code == 404
    assert "zanzibar" not in "".join([*said, listed.text, ring.text, noted.text, gone.text])
    assert actions(house, ops, "BANK") == ["secret.delete", "secret.rotate", "secret.set"]


@pytest.mark.parametrize(
    ("name", "value"), [("BANK", ""), ("BANK", "a\0b"), ("9", "x"), ("a b", "x"), ("BANK", 7)]
)
def test_a_secret_that_cannot_be_is_refused_without_its_value(
    ops: httpx.Client, name: str, value: Any
) -> None:
    refused = ops.put(f"/v1/secrets/{name}", json={"value": value})
    assert refused.status_code == 422, refused.text
    assert ops.get("/v1/secrets").json()["secrets"] == []


# Mappings.

MAPPING = """
mapping: countries
codes: {iso: {PH: "%s"}}
fields:
  country: {from: country, code: iso}
"""


def test_a_mapping_goes_from_text_to_use_and_its_pipelines_get_a_new_version(
    ops: httpx.Client, house: ApiHouse
) -> None:
    made = ops.post("/v1/mappings", json={"yaml": MAPPING % "608"})
    assert (made.status_code, made.json()["new"]) == (201, True)
    assert ops.post("/v1/mappings", json={"yaml": MAPPING % "608"}).status_code == 200
    place = f"/v1/mappings/countries/versions/{made.json()['version']}"
    committed = ops.post(f"{place}/commit", json={"comment": "the first one"}).json()
    assert (committed["state"], committed["comment"]) == ("committed", "the first one")
    used = ops.post(f"{place}/use", json={"reason": "the bank wants numbers"}).json()
    assert (used["inUse"], used["pipelines"]) == (True, [])
    house.kit.use(Pipeline("maps").step("util/map-fields", params={"mapping": "countries"}).build())
    other = ops.post("/v1/mappings", json={"yaml": MAPPING % "999"}).json()["version"]
    used = ops.post(f"/v1/mappings/countries/versions/{other[:8]}/use").json()
    assert [each["pipeline"] for each in used["pipelines"]] == ["maps"]
    assert house.kit.run("maps", {"country": "PH"}).output == {"country": "999"}
    shown = ops.get(f"/v1/mappings/countries/versions/{other}").json()
    assert shown["definition"]["codes"] == {"iso": {"PH": "999"}}
    versions = ops.get("/v1/mappings/countries").json()["versions"]
    assert [each["inUse"] for each in versions] == [True, False]
    [listed] = ops.get("/v1/mappings").json()["mappings"]
    assert (listed["name"], listed["versionInUse"], listed["versions"]) == ("countries", other, 2)
    done = actions(house, ops, "countries")
    assert {"mapping.apply", "mapping.commit", "mapping.use"} <= set(done)


def test_a_mapping_that_is_wrong_or_unknown_is_refused(ops: httpx.Client) -> None:
    wrong = ops.post("/v1/mappings", json={"definition": {"mapping": "x", "fields": {"a": 5}}})
    assert wrong.status_code == 422 and "fields.a" in wrong.json()["detail"]
    assert ops.post("/v1/mappings", json={}).status_code == 422
    assert ops.get("/v1/mappings/none").status_code == 404
    assert ops.get("/v1/mappings/none/versions/0").status_code == 404
    assert ops.post("/v1/mappings/none/versions/0/use").status_code == 404
