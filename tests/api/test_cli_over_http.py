"""`datp --url`: the command line with a URL and a key, and no password of any server."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from datp_tasks.cli import app
from datp_tasks.cli.command_context import ask_over_http
from datp_tasks.errors import ApprovalNeeded, DatpError
from datp_tasks.model.actor import Role
from tests.support.api_house import ApiHouse

#: The default policy: putting a version into use needs a second person.
SETTINGS = {"policy_file": ""}
YAML = """
pipeline: remote
nodeGroup: master
steps:
  - type: util/fixed-reply
    params: {output: {said: %s}}
"""


class Terminal:
    """A person at a terminal that knows neither PostgreSQL nor Redis."""

    def __init__(self, url: str, key: str) -> None:
        self._options = ["--url", url, "--key", key]

    def run(self, *words: str) -> Result:
        return CliRunner().invoke(app, [*self._options, *words], catch_exceptions=True)

    def __call__(self, *words: str) -> str:
        result = self.run(*words)
        if result.exception and not isinstance(result.exception, SystemExit):
            raise result.exception
        return result.output

    def json(self, *words: str) -> Any:
        return json.loads(self(*words, "--json"))


@pytest.fixture(autouse=True)
def _alone(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    """No server is named, and none runs in this folder."""
    monkeypatch.chdir(tmp_path)
    for name in ("DATP_DATABASE_URL", "DATP_REDIS_URL", "DATP_BROKER_URL", "DATP_KEY"):
        monkeypatch.delenv(name, raising=False)
    yield
    ask_over_http(None, None)


@pytest.fixture
def admin(house: ApiHouse) -> Terminal:
    return Terminal(house.url, house.new_key(house.new_owner("admin"), Role.ADMIN))


@pytest.fixture
def acme(house: ApiHouse) -> Terminal:
    return Terminal(house.url, house.new_key(house.new_owner("acme")))


def test_a_client_submits_waits_and_signals(acme: Terminal) -> None:
    shown = acme("submit", "echo", "--data", '{"amount": 5}', "--wait")
    assert "success" in shown and '"amount": 5' in shown
    sleeper = acme("submit", "nap", "--quiet").strip()
    assert acme.json("status", sleeper)["status"] == "sleeping"
    assert "woke up" in acme("switch", sleeper, "go", "7")
    assert acme.json("status", sleeper)["output"] == {"went": 7}
    other = acme("submit", "nap", "-q").strip()
    assert "woken up" in acme("wake", other)
    assert "cancelled" in acme("cancel", other)
    assert "cancelled" in acme("watch", other)


def test_an_operator_looks_and_acts(admin: Terminal, acme: Terminal) -> None:
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


def test_pipelines_groups_keys_and_approvals(admin: Terminal, tmp_path: Path) -> None:
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
    exported = json.loads(admin("pipelines", "export", "remote", "--version", newest))
    (tmp_path / "exported.json").write_text(json.dumps(exported))
    assert "unchanged" in admin("pipelines", "import", str(tmp_path / "exported.json"))
    assert "remote" in admin("pipelines", "list")
    with pytest.raises(ApprovalNeeded) as needed:
        admin("pipelines", "use", "remote", newest, "--reason", "it is better")
    number = str(needed.value.approval_id)
    assert number in admin("approvals", "list") and "it is better" in admin(
        "approvals", "show", number
    )
    assert "rejected" in admin("approvals", "reject", number, "--note", "not on a Friday")
    assert "follow within seconds" in admin("groups", "set", "far", "concurrency=2")
    assert "far" in admin("groups", "list") and "2" in admin("groups", "show", "far")
    made = admin.json("keys", "create", "--owner", "far", "--grant", "read")
    assert made["id"] in admin("keys", "list", "--owner", "far")
    assert "revoked" in admin("keys", "revoke", made["id"])
    assert "7" in admin("keys", "limit", "far", "--burst-max", "7")


def test_the_server_decides_what_a_key_may(acme: Terminal) -> None:
    with pytest.raises(DatpError, match="role"):
        acme("doctor")


def test_what_needs_the_servers_says_so(admin: Terminal) -> None:
    with pytest.raises(DatpError, match="Run it without --url"):
        admin("replay", "t00-" + "0" * 32)
    with pytest.raises(DatpError, match="Run it without --url"):
        admin("audit")


def test_a_url_needs_a_key(house: ApiHouse) -> None:
    result = CliRunner().invoke(app, ["--url", house.url, "alerts"])
    assert isinstance(result.exception, DatpError) and "DATP_KEY" in str(result.exception)


def test_the_key_may_be_in_the_environment(
    house: ApiHouse, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DATP_KEY", house.new_key(house.new_owner("env")))
    result = CliRunner().invoke(app, ["--url", house.url, "submit", "echo", "-q"])
    assert result.exit_code == 0 and result.output.startswith("t")
