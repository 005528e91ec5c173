"""A person with a key at the command line may do what its role allows; the audit is shown there."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace

import pytest
import typer
from typer.testing import CliRunner

from datp_tasks.cli import action_list, command_context, resolve
from datp_tasks.cli.acting import KEY_VARIABLE
from datp_tasks.cli.command_context import Context
from datp_tasks.cli.command_roles import check
from datp_tasks.errors import KeyInvalid, NotGranted
from datp_tasks.model.actor import Actor, Role
from datp_tasks.record.operator_actions import record_action
from datp_tasks.testing import Kit

PEPPER = "a pepper of forty characters, for a test"


@pytest.fixture
def here(datp: Kit, monkeypatch: pytest.MonkeyPatch) -> Iterator[Context]:
    """What a command would connect to."""
    made = Context(replace(datp.settings, key_pepper=PEPPER))
    monkeypatch.setattr(command_context, "connect", lambda: made)
    monkeypatch.setattr(command_context, "connect_sql", lambda: made)
    monkeypatch.setattr(action_list, "connect", lambda: made)
    monkeypatch.setenv("COLUMNS", "200")
    yield made
    made.close()


def key(here: Context, role: Role | None) -> str:
    return here.api_keys.create("staff", role, actor=Actor(name="test")).text


def test_a_command_asks_for_the_role_of_the_key(
    here: Context, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(KEY_VARIABLE, key(here, Role.VIEWER))
    check("list")
    check("up")
    for path in ("resolve", "keys create", "pipelines use", "a command without a row"):
        with pytest.raises(NotGranted, match="needs a key with the role"):
            check(path)
    assert here.actor.name.startswith("key ")


@pytest.mark.parametrize("text", ["client", "datp_0123456789abcdef_unknown"])
def test_a_key_that_is_no_operators_is_refused(
    here: Context, monkeypatch: pytest.MonkeyPatch, text: str
) -> None:
    monkeypatch.setenv(KEY_VARIABLE, key(here, None) if text == "client" else text)
    with pytest.raises(KeyInvalid):
        check("list")


def test_without_a_key_the_machine_says_who_it_is(
    here: Context, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(KEY_VARIABLE, raising=False)
    monkeypatch.setenv("DATP_ACTOR", "the queen")
    check("keys create")
    assert here.actor.name.startswith("cli ") and here.actor.name.endswith(" as the queen")
    assert here.actor.role is Role.ADMIN


def test_the_audit_is_listed_and_a_changed_row_is_named(here: Context, datp: Kit) -> None:
    app = typer.Typer()
    resolve.add_commands(app)
    engine = datp.connections.engine
    record_action(engine, actor=Actor(name="ann"), action="resolve", subject="t1", reason="seen")
    datp.run_job("audit_sealer")
    good = CliRunner().invoke(app, ["audit", "actions"], catch_exceptions=False)
    assert (good.exit_code, "the chain of 1 is whole" in good.output) == (0, True), good.output
    head = good.output.split("head ")[1].strip()
    with engine.begin() as sql:
        sql.exec_driver_sql("UPDATE operator_action SET reason = 'never'")
    options = ["audit", "actions", "--json", "--head", head]
    bad = CliRunner().invoke(app, options, catch_exceptions=False)
    shown = json.loads(bad.output)
    assert bad.exit_code == 5
    assert shown["faults"] == [f"action {shown['actions'][0]['id']}, or its seal, was changed"]


def test_actions_at_80_columns_leave_out_what_no_row_fills(
    here: Context, datp: Kit, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    app = typer.Typer()
    resolve.add_commands(app)
    engine, cli = datp.connections.engine, Actor(name="cli ann")
    record_action(engine, actor=cli, action="pipeline.commit", subject="transfer", reason="new")
    record_action(engine, actor=cli, action="key.create", subject="553e622f9356f20e", reason=None)
    head, *rows = CliRunner().invoke(app, ["audit", "actions"]).output.splitlines()
    assert head.split() == ["at", "id", "actor", "action", "subject", "reason"]
    assert rows[0].split()[-2:] == ["key.create", "553e622f9356f20e"]
    assert rows[1].split()[-3:] == ["pipeline.commit", "transfer", "new"]
