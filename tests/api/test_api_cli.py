"""`datp keys …` as people type it, and the API that `datp up` runs."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from typer.testing import CliRunner

from datp_tasks.cli import api_keys as cli
from datp_tasks.cli.api import start_local_api
from datp_tasks.cli.command_context import Context, connect
from datp_tasks.cli.up import doors
from datp_tasks.errors import KeyInvalid, KeyUnknown, SettingsError
from datp_tasks.local.ports import pick_free_port
from datp_tasks.local.stack import Stack
from datp_tasks.settings import Settings
from datp_tasks.testing import Kit
from datp_tasks.testing.servers import Servers

Run = Callable[..., str]


@pytest.fixture
def run(kit: Kit, monkeypatch: pytest.MonkeyPatch) -> Iterator[Run]:
    """Runs a command line and returns what it printed."""
    context = Context(kit.settings)
    monkeypatch.setattr(cli, "connect", lambda: context)
    monkeypatch.setenv("COLUMNS", "160")
    monkeypatch.setenv("DATP_ACTOR", "ann")

    def run(*arguments: str) -> str:
        result = CliRunner().invoke(cli.app, list(arguments), catch_exceptions=False)
        assert result.exit_code == 0, result.output
        return result.stdout

    yield run
    context.close()


def listed(run: Run, *options: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(run("list", "--json", *options))
    return found


def test_a_key_is_shown_once_listed_and_revoked(run: Run) -> None:
    key = run("create", "--owner", "cli-one", "--name", "ci").strip()
    assert key.startswith("datp_")
    [found] = listed(run, "--owner", "cli-one")
    assert (found["owner"], found["role"], found["name"]) == ("cli-one", None, "ci")
    assert found["grants"] is None
    secret = key.split("_", 2)[2]
    assert secret not in run("list") + run("list", "--json")
    assert run("revoke", found["id"], "--reason", "lost").strip() == "revoked"
    assert run("revoke", found["id"]).strip() == "it was revoked before"
    assert listed(run, "--owner", "cli-one")[0]["revokedAt"] is not None
    assert "revoked" in run("list", "--owner", "cli-one")
    with pytest.raises(KeyUnknown):
        run("revoke", "nothing")


def test_a_key_for_operators_that_ends_by_itself_can_be_made(run: Run) -> None:
    options = ("--owner", "cli-two", "--role", "operator", "--expires-in-days", "30", "--json")
    made = json.loads(run("create", *options))
    assert made["key"].split("_")[1] == made["id"]
    assert (made["role"], made["expiresAt"] > made["createdAt"]) == ("operator", True)


def test_a_key_has_the_grants_it_was_given_and_no_others(run: Run) -> None:
    made = run("create", "--owner", "cli-four", "--grant", "read", "--grant", "submit:pay-*")
    [found] = listed(run, "--owner", "cli-four")
    assert (found["id"], found["grants"]) == (made.split("_")[1], ["read", "submit:pay-*"])
    assert "submit:pay-*" in run("list", "--owner", "cli-four")
    for wrong in ("everything", "submit", "read:all", "switch:", "submit:*x", "batch:a b"):
        with pytest.raises(KeyInvalid, match="a grant is read"):
            run("create", "--owner", "cli-four", "--grant", wrong)


def test_limits_of_an_owner_are_changed_one_by_one_and_reset(run: Run) -> None:
    assert run("limit", "cli-three").count("as the settings say") == 3
    run("limit", "cli-three", "--requests-per-s", "5")
    shown = run("limit", "cli-three", "--in-flight-max", "0")
    assert shown.splitlines() == [
        "requests per s: 5.0",
        "burst max: as the settings say",
        "in flight max: 0",
    ]
    assert run("limit", "cli-three", "--reset").count("as the settings say") == 3


def test_without_a_pepper_no_key_is_made(
    kit: Kit, monkeypatch: pytest.MonkeyPatch, run: Run
) -> None:
    context = Context(Settings(database_url=kit.settings.database_url))
    monkeypatch.setattr(cli, "connect", lambda: context)
    with pytest.raises(SettingsError, match="DATP_KEY_PEPPER"):
        run("create", "--owner", "x")
    context.close()


def test_datp_up_serves_an_api_with_a_key_that_it_keeps(
    datp_servers: Servers, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("DATP_REDIS_URL", "DATP_DATABASE_URL", "DATP_KEY_PEPPER"):
        monkeypatch.delenv(name, raising=False)
    directory = tmp_path / "up"
    given: dict[str, Any] = {
        "redis_url": datp_servers.redis_url,
        "database_url": datp_servers.database_url,
    }
    (tmp_path / "policy.yaml").write_text("policy: four-eyes\n")
    keys = set()
    for policy in ("single-person", str(tmp_path / "policy.yaml")):
        # A command here takes the policy that its processes were given, unless its own environment
        # names another.
        monkeypatch.setenv("DATP_SECURITY__POLICY_FILE", policy)
        with Stack(directory, **given) as stack:
            stack.start_servers()
            api = start_local_api(stack, pick_free_port())
            texts = [each.read_text().strip() for each in (api.key_file, api.operator_key_file)]
            keys.update(texts)
            # Programs get a key that is no operator's.
            for text, answer in zip(texts, (403, 200), strict=True):
                headers = {"Authorization": f"Bearer {text}"}
                assert httpx.get(f"{api.url}/v1/alerts", headers=headers).status_code == answer
            mine = httpx.get(
                f"{api.url}/v1/transactions", headers={"Authorization": f"Bearer {texts[0]}"}
            )
            assert mine.status_code == 200
            shown = "\n".join(doors(api, None))
            assert "operator-key" in shown
            assert not any(text in shown for text in texts)
            assert httpx.get(f"{api.url}/v1/alerts").status_code == 401
            # Other commands here find the pepper, and so can make keys that this API knows.
            with monkeypatch.context() as elsewhere:
                elsewhere.delenv("DATP_SECURITY__POLICY_FILE")
                context = connect(directory)
            assert context.settings.policy_file == policy
            assert context.settings.key_pepper == stack.key_pepper()
            ends = [context.api_keys.one(text.split("_")[1]).expires_at for text in texts]
            # What may do everything ends by itself.
            assert ends[0] is None and ends[1] is not None
    assert len(keys) == 2
    for name in ("key-pepper", "api-key", "operator-key"):
        assert (directory / name).stat().st_mode & 0o077 == 0
