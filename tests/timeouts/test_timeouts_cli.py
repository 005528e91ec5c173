"""`datp timeouts` and `datp submit --expires-in` as people type them."""

from __future__ import annotations

import json

import pytest
import typer
from typer.testing import CliRunner, Result

from datp_tasks import Pipeline
from datp_tasks.cli import timeouts as timeouts_cli
from datp_tasks.cli import transactions as transactions_cli
from datp_tasks.errors import ExpiryInvalid
from datp_tasks.model.actor import Actor, Role
from datp_tasks.record import timeouts
from datp_tasks.testing import Kit
from tests.support.command_parts import command_parts
from tests.timeouts.change_log import ChangeLog


@pytest.fixture(autouse=True)
def connected(datp: Kit, monkeypatch: pytest.MonkeyPatch) -> None:
    context = command_parts(datp, actor=Actor(name="cli ops", role=Role.ADMIN))
    monkeypatch.setattr(timeouts_cli, "connect", lambda: context)
    monkeypatch.setattr(transactions_cli, "connect", lambda: context)
    monkeypatch.setenv("COLUMNS", "160")
    datp.use(Pipeline("p").step("util/delay", params={"seconds": 3_600}).build())


def run(*words: str, fails: type[Exception] | None = None) -> Result:
    app = typer.Typer()
    timeouts_cli.add_commands(app)
    transactions_cli.add_commands(app)
    return CliRunner().invoke(app, list(words), catch_exceptions=fails is not None)


def test_an_empty_system_has_nothing_to_show() -> None:
    result = run("timeouts")
    assert result.exit_code == 0
    assert "0 in process, 0 of them due" in result.output
    assert "never" in result.output


def test_it_shows_what_expires_next_and_where_the_handler_is(datp: Kit) -> None:
    later = datp.submit("p", {}, owner="bob", expires_in_s=600)
    sooner = datp.submit("p", {}, expires_in_s=90)
    datp.submit("p", {})
    assert "0 in process" in run("timeouts").output
    datp.run_job("timeout_handler")
    output = run("timeouts").output
    assert "2 in process, 0 of them due" in output
    assert output.index(sooner) < output.index(later)
    assert "90 s" in output
    assert "bob" in output
    assert later not in run("timeouts", "--limit", "1").output


def test_it_shows_what_is_due_and_what_rolls_back(datp: Kit) -> None:
    tx_id = datp.submit("p", {}, expires_in_s=60)
    datp.run_job("timeout_handler")
    datp.clock.advance(seconds=61)
    assert "1 in process, 1 of them due" in run("timeouts").output
    assert "-1 s" in run("timeouts").output
    datp.lose_bells()
    datp.run_job("timeout_handler")
    output = run("timeouts").output
    assert tx_id in output
    assert "rolls back" in output


def test_json_is_for_programs(datp: Kit) -> None:
    tx_id = datp.submit("p", {}, expires_in_s=60)
    datp.run_job("timeout_handler")
    shown = json.loads(run("timeouts", "--json").output)
    assert (shown["watched"], shown["due"], shown["behind"]) == (1, 0, False)
    assert shown["segment"]["value"] > 0
    [first] = shown["next"]
    assert (first["txId"], first["expiresAt"]) == (tx_id, "2027-01-15T08:01:00+00:00")


def test_a_handler_that_is_behind_shows_and_has_an_exit_code(datp: Kit, log: ChangeLog) -> None:
    datp.submit("p", {}, expires_in_s=600)
    datp.clock.advance(seconds=timeouts.LAG_ALERT_S + 1)
    result = run("timeouts")
    assert result.exit_code == 3
    assert "61.0 s" in result.output


def test_submit_takes_an_expiry(datp: Kit) -> None:
    result = run("submit", "p", "--expires-in", "60", "--json")
    assert json.loads(result.output)["expiresAt"] == "2027-01-15T08:01:00+00:00"
    assert "2027-01-15 08:01:00" in run("submit", "p", "--expires-in", "60").output


def test_submit_refuses_a_bad_expiry(datp: Kit) -> None:
    result = run("submit", "p", "--expires-in", "-1", fails=ExpiryInvalid)
    assert isinstance(result.exception, ExpiryInvalid)
