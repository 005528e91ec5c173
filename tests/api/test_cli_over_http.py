"""`datp --url`: the command line with a URL and a key, and no password of any server."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy import text
from typer.testing import CliRunner

from datp_tasks import Pipeline
from datp_tasks.cli import app
from datp_tasks.cli.remote_calls import RemoteCalls
from datp_tasks.cli.remote_transactions import _sent
from datp_tasks.client.requests import Request
from datp_tasks.errors import DatpError, RequestError
from datp_tasks.http.api_error import ApiError
from datp_tasks.ledger.batch_list import derived_id, unsigned_batch_list
from datp_tasks.ledger.batch_types import Service
from datp_tasks.model.actor import Role
from tests.support.api_house import ApiHouse
from tests.support.remote_terminal import RemoteTerminal, no_servers

YAML = """
pipeline: remote
nodeGroup: master
steps:
  - type: util/fixed-reply
    params: {output: {said: %s}}
"""


@pytest.fixture(autouse=True)
def _alone(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    with no_servers(monkeypatch, tmp_path):
        yield


@pytest.fixture
def admin(house: ApiHouse) -> RemoteTerminal:
    return RemoteTerminal(house.url, house.new_key(house.new_owner("admin"), Role.ADMIN))


@pytest.fixture
def acme(house: ApiHouse) -> RemoteTerminal:
    return RemoteTerminal(house.url, house.new_key(house.new_owner("acme")))


def test_a_client_submits_waits_and_signals(acme: RemoteTerminal) -> None:
    shown = acme("submit", "echo", "--input", '{"amount": 5}', "--wait")
    assert "success" in shown and '"amount": 5' in shown
    sleeper = acme("submit", "nap", "--quiet").strip()
    assert acme.json("status", sleeper)["status"] == "sleeping"
    assert "woke up" in acme("switch", sleeper, "go", "7")
    assert acme.json("status", sleeper)["output"] == {"went": 7}
    other = acme("submit", "nap", "-q").strip()
    assert "woken up" in acme("wake", other)
    assert "cancelled" in acme("cancel", other)
    assert "cancelled" in acme("watch", other)


def test_an_operator_looks_and_acts(admin: RemoteTerminal, acme: RemoteTerminal) -> None:
    sleeper = acme("submit", "nap", "-q").strip()
    owner = acme.json("status", sleeper)["owner"]
    assert "switch" in admin("why", sleeper)
    listed = admin.json("list", "--where", f"owner={owner}", "--where", "newer-than=1h")
    assert [each["txId"] for each in listed] == [sleeper]
    assert "would be changed" in admin(
        "bulk", "cancel", "--where", f"owner={owner}", "--reason", "test", "--dry-run"
    )
    assert "1 of 1 done" in admin(
        "bulk", "cancel", "--where", f"owner={owner}", "--reason", "a wrong file"
    )
    assert acme.json("status", sleeper)["status"] == "cancelled"
    assert "in flight" in admin("doctor").lower() or "lists" in admin("doctor")
    assert admin.run("alerts").exit_code in (0, 5)


def test_pipelines_groups_and_keys(admin: RemoteTerminal, tmp_path: Path) -> None:
    file = tmp_path / "remote.yaml"
    file.write_text(YAML % "one")
    assert "new version, committed" in admin("pipelines", "apply", str(file), "--commit", "first")
    file.write_text(YAML % "two")
    assert "new version" in admin("pipelines", "apply", str(file))
    newest, first = (
        each["version"] for each in admin.json("pipelines", "show", "remote")["versions"]
    )
    assert "said: two" in admin("pipelines", "diff", "remote", first, newest)
    assert "committed" in admin("pipelines", "commit", "remote", "-m", "second")
    with pytest.raises(DatpError, match="has no draft to commit"):
        admin("pipelines", "commit", "remote", "-m", "third")
    exported = json.loads(admin("pipelines", "export", "remote", "--version", newest))
    (tmp_path / "exported.json").write_text(json.dumps(exported))
    assert "unchanged" in admin("pipelines", "import", str(tmp_path / "exported.json"))
    assert "remote" in admin("pipelines", "list")
    assert "in use" in admin("pipelines", "use", "remote", newest, "--reason", "it is better")
    assert "no approval is waited for" in admin("approvals", "list")
    assert "follow within seconds" in admin("groups", "set", "far", "concurrency=2")
    assert "far" in admin("groups", "list") and "2" in admin("groups", "show", "far")
    made = admin.json("keys", "create", "--owner", "far", "--grant", "read")
    assert made["id"] in admin("keys", "list", "--owner", "far")
    assert "revoked" in admin("keys", "revoke", made["id"])
    assert "7" in admin("keys", "limit", "far", "--burst-max", "7")


def test_the_server_decides_what_a_key_may(acme: RemoteTerminal) -> None:
    with pytest.raises(DatpError, match="role"):
        acme("doctor")


def test_webhooks_and_endpoints(admin: RemoteTerminal, house: ApiHouse) -> None:
    owner = house.new_owner("told")
    url = "https://shop.example.com/hooks"
    id, secret = admin("endpoints", "add", url, "--owner", owner).split()
    assert secret.startswith("whsec_")
    assert [each["id"] for each in admin.json("endpoints", "list", "--owner", owner)] == [id]
    admin("endpoints", "set", id, "--type", "transaction.completed", "--description", "books")
    shown = admin.json("endpoints", "show", id)
    assert (shown["types"], shown["description"]) == (["transaction.completed"], "books")
    assert admin("endpoints", "rotate", id, "--overlap-s", "0").startswith("whsec_")
    delivery = admin("endpoints", "test", id).strip()
    assert admin.json("endpoints", "show", id)["deliveries"][0]["id"] == delivery
    admin(*("endpoints", "replay", id, "--from", "2027-01-31T12:00:00Z"), "--to", "2027-02-01T00Z")
    assert admin.json("endpoints", "show", id)["replayTo"].startswith("2027-02-01")
    listed = admin.json("webhooks", "list", "--state", "all", "--owner", owner)
    assert [each["id"] for each in listed] == [delivery]
    shown = admin.json("webhooks", "show", delivery)
    assert (shown["kind"], shown["state"], shown["log"]) == ("test", "pending", [])
    assert "0 deliveries" in admin("webhooks", "redeliver", "--dead", "--owner", owner)
    admin("endpoints", "set", id, "--disable")
    assert admin.json("webhooks", "show", delivery)["state"] == "cancelled"
    assert "is sent again" in admin("webhooks", "redeliver", delivery)
    assert "deleted" in admin("endpoints", "delete", id)
    with pytest.raises(DatpError, match="Run it without --url"):
        admin("webhooks", "secrets", "show", "--owner", owner)


def test_a_ledger(admin: RemoteTerminal, acme: RemoteTerminal, house: ApiHouse) -> None:
    name = house.new_owner("grid")
    ledger = house.kit.connections.ledger
    ledger.batches.add_service(Service(service_id=name, kind="sawtooth", url="http://127.0.0.1:1"))
    assert name in [each["service"] for each in admin.json("services", "list")]
    assert [each["service"] for each in admin.json("claims", "--service", name)] == [name]
    stored = house.kit.client.submit_batch(
        name, unsigned_batch_list(derived_id(name), b"{}"), owner="someone"
    )
    [batch] = admin.json("batches", "list", "--service", name)
    assert (batch["batch"], batch["seq"]) == (stored.batch_id, stored.seq)
    start = stored.batch_id[:16]
    assert "without --url" in admin("batches", "show", name, start)
    assert "PARKED" in admin("batches", "park", name, start, "--reason", "asked")
    assert admin.json("batches", "show", name, start)["state"] == "PARKED"
    assert admin("batches", "resume", name, start, "--reason", "asked").strip()
    with pytest.raises(DatpError, match="no batch"):
        admin("batches", "show", name, "other")


def test_what_explains(admin: RemoteTerminal, acme: RemoteTerminal, tmp_path: Path) -> None:
    tx_id = acme("submit", "echo", "-q").strip()
    assert "leads to what we have" in admin("replay", tx_id)
    assert admin.json("replay", tx_id)["status"] == "success"
    admin("logs", tx_id)
    assert admin.json("timeouts")["next"] == [] and "behind" in admin("timeouts")
    assert "util/delay" in [each["name"] for each in admin.json("steps", "list")]
    assert admin.json("steps", "show", "util/delay")["name"] == "util/delay"
    assert "verified where" in admin("audit", "actions", "--limit", "3")
    assert len(admin.json("audit", "actions", "--limit", "3")["actions"]) == 3
    file = tmp_path / "remote.yaml"
    file.write_text((YAML % "three").replace("remote", "to-clone"))
    version = admin("pipelines", "apply", str(file)).split()[1].rstrip(":")
    assert "new draft" in admin("pipelines", "clone", "to-clone", "cloned", "--version", version)
    assert "deleted" in admin("pipelines", "delete", "to-clone", version)


def test_what_is_sealed_is_unmasked_over_http(
    admin: RemoteTerminal, acme: RemoteTerminal, house: ApiHouse
) -> None:
    house.kit.use(Pipeline("sealed", sealed=True).step("t/echo").build())
    tx_id = acme("submit", "sealed", "--input", '{"card": "4111"}', "-q").strip()
    assert "4111" not in admin("status", tx_id)
    shown = json.loads(admin("unmask", tx_id, "--reason", "a complaint"))
    assert shown["input"] == {"card": "4111"}


def test_what_needs_the_servers_says_so(admin: RemoteTerminal) -> None:
    for words, why in (
        (("erase", "--files"), "files of the journal of the host"),
        (("keyring", "rotate"), "no API gives away"),
    ):
        with pytest.raises(DatpError, match=rf"{why}.*Run it without --url"):
            admin(*words)
    with pytest.raises(DatpError, match="Run it without --url"):
        admin("audit", "actions", "--head", "1:abc")


def test_audits_and_erasures_are_done_by_the_server_while_the_command_waits(
    admin: RemoteTerminal,
    acme: RemoteTerminal,
    house: ApiHouse,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # What beat would start meanwhile.
    waits: list[float] = []

    def job(seconds: float) -> None:
        waits.append(seconds)
        house.kit.run_job("operator_runs")

    monkeypatch.setattr("datp_tasks.cli.remote_runs.sleep", job)
    tx_id = acme("submit", "echo", "--input", '{"customer": "zoe"}', "-q").strip()
    house.kit.advance(seconds=61)
    house.kit.run_job("archiver")
    assert "do not fit" in admin("audit", "--all")
    sampled = admin.json("audit", "--sample", "1")
    assert (sampled["audited"], sampled["wrongCount"]) == (1, 0)
    which = ("erase", "--subject", "/customer=zoe")
    assert "1 would go" in admin(*which, "--dry-run")
    assert admin.json(*which, "--dry-run") == {"count": 1, "more": False}
    with pytest.raises(DatpError, match="needs a reason"):
        admin(*which, "--yes")
    done = admin(*which, "--reason", "request 7", typed="y\n")
    assert "1 of 1 erased" in done and "payloads of 1 for ever" in done
    assert admin.json("status", tx_id)["input"] == {}
    assert len(waits) == 3


def test_what_a_server_could_not_erase_is_named_and_told_by_the_exit_code(
    admin: RemoteTerminal,
    acme: RemoteTerminal,
    house: ApiHouse,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(
        "datp_tasks.cli.remote_runs.sleep", lambda _: house.kit.run_job("operator_runs")
    )
    tx_id = acme("submit", "nap", "--input", '{"customer": "yul"}', "-q").strip()
    which = ("erase", "--subject", "/customer=yul", "--reason", "request 8", "--yes")
    done = admin.run(*which)
    assert (done.exit_code, tx_id in done.output) == (6, True)
    assert "0 of 1 erased" in done.output
    monkeypatch.setattr("datp_tasks.record.erasure.Erasure.may_erase", lambda _: False)
    with pytest.raises(DatpError, match="role that owns the tables"):
        admin(*which)


def test_secrets_are_set_listed_and_deleted_and_their_values_are_never_shown(
    admin: RemoteTerminal, acme: RemoteTerminal
) -> None:
    assert "stored far" in admin("secrets", "set", "far", typed="s3cret\n")
    assert "new value" in admin("secrets", "rotate", "far", typed="other\n")
    with pytest.raises(DatpError, match="no secret"):
        admin("secrets", "rotate", "nowhere", typed="other\n")
    assert "nowhere" not in {each["name"] for each in admin.json("secrets", "list")}
    listed = admin.json("secrets", "list")
    assert [each["name"] for each in listed if each["name"] == "far"] == ["far"]
    assert "s3cret" not in json.dumps(listed) and "other" not in json.dumps(listed)
    with pytest.raises(DatpError, match="role admin"):
        acme("secrets", "list")
    [active] = [each for each in admin.json("keyring", "list") if each["active"]]
    assert active["known"] and active["rows"] >= 1
    assert "far is gone" in admin("secrets", "delete", "far")


def test_rules_of_retention_are_set_listed_and_removed(admin: RemoteTerminal) -> None:
    assert "400 days" in admin("retention", "set", "owner", "far", "400", "--reason", "contract 7")
    assert {"kind": "owner", "name": "far", "days": 400} in admin.json("retention", "list")
    assert "removed" in admin("retention", "remove", "owner", "far", "--reason", "over")
    assert "no such rule" in admin("retention", "remove", "owner", "far", "--reason", "over")


def test_top_shows_groups_and_rates(admin: RemoteTerminal, acme: RemoteTerminal) -> None:
    acme("submit", "echo", "--input", "{}")
    found = admin.json("top")
    assert "master" in {each["name"] for each in found["groups"]}
    assert found["rates"].keys() == {"queued", "started", "ended"}
    assert "Groups" in admin("top", "--once")


def test_the_owner_is_that_of_the_key(admin: RemoteTerminal) -> None:
    for words in (("submit", "echo"), ("bulk-transfers", "submit", "bulk.yaml")):
        with pytest.raises(DatpError, match=r"--owner .*owner of the key"):
            admin(*words, "--owner", "another")


def test_zero_is_sent_and_what_is_not_given_is_not() -> None:
    sent = _sent(
        Request(pipeline="pay", input={}, owner="acme", expires_in_s=0, progress_reports=False)
    )
    assert sent == {"pipeline": "pay", "input": {}, "expiresInSeconds": 0}


def test_dead_letters_are_sent_again_but_for_what_was_erased(
    admin: RemoteTerminal, house: ApiHouse, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("datp_tasks.cli.remote_webhooks.PAGE_MAX", 1)
    owner = house.new_owner("told")
    webhooks = house.kit.connections.webhooks
    id = webhooks.endpoints.add(owner, "https://shop.example.com/dead")[0].id
    letters = [webhooks.endpoints.test(id) for _ in range(3)]
    with house.kit.connections.engine.begin() as sql:
        give_up = "UPDATE webhook_delivery SET state = 'dead', finished_at = now() WHERE id = :id"
        sql.execute(text(give_up), [{"id": each} for each in letters])
        erase = "UPDATE webhook_delivery SET payload = '' WHERE id = :id"
        sql.execute(text(erase), {"id": letters[1]})
    assert "2 deliveries" in admin("webhooks", "redeliver", "--dead", "--owner", owner)
    states = [webhooks.store.find(each).state for each in letters]
    assert states == ["pending", "dead", "pending"]
    webhooks.endpoints.delete(id)


def test_a_secret_of_another_owner_is_not_taken_for_the_one_that_was_asked_for(
    acme: RemoteTerminal, monkeypatch: pytest.MonkeyPatch
) -> None:
    command = ("webhooks", "secrets", "rotate", "--owner", "zeta")
    with pytest.raises(ApiError, match="its own owner"):
        acme(*command)
    # A server of an earlier release rotates without a word.
    made = {"owner": "acme", "secret": "whsec_mine"}
    monkeypatch.setattr(RemoteCalls, "post", lambda *_, **__: made)
    with pytest.raises(RequestError, match="for acme, not for zeta"):
        acme(*command)


def test_a_url_needs_a_key(house: ApiHouse) -> None:
    result = CliRunner().invoke(app, ["--url", house.url, "alerts"])
    assert isinstance(result.exception, DatpError) and "DATP_KEY" in str(result.exception)


def test_the_key_may_be_in_the_environment(
    house: ApiHouse, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DATP_KEY", house.new_key(house.new_owner("env")))
    result = CliRunner().invoke(app, ["--url", house.url, "submit", "echo", "-q"])
    assert result.exit_code == 0 and result.output.startswith("t")


def test_mappings_over_http(admin: RemoteTerminal, tmp_path: Path) -> None:
    file = tmp_path / "codes.yaml"
    yaml = "mapping: remote-codes\nfields: {kind: {literal: %s}}\n"
    file.write_text(yaml % "one")
    assert "new version" in admin("mappings", "apply", str(file))
    assert "committed: first" in admin("mappings", "commit", "remote-codes", "-m", "first")
    with pytest.raises(DatpError, match="has no draft to commit"):
        admin("mappings", "commit", "remote-codes", "-m", "again")
    version = admin.json("mappings", "show", "remote-codes")["version"]
    assert "in use" in admin("mappings", "use", "remote-codes", version, "--reason", "go")
    file.write_text(yaml % "two")
    admin("mappings", "apply", str(file), "--commit", "second", "--use")
    shown = admin.json("mappings", "show", "remote-codes")
    assert shown["definition"]["fields"] == {"kind": {"literal": "two"}}
    assert version in admin("mappings", "show", "remote-codes", "--version", version)
    assert shown["version"] in [each["versionInUse"] for each in admin.json("mappings", "list")]
