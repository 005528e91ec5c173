"""`datp claims`, `datp batches …`, `datp services …` and `datp ledger-sim` as people type them."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest
import typer
from typer.testing import CliRunner

from datp_tasks.cli import ledger as cli
from datp_tasks.errors import BatchBusy, BatchInvalid, BatchUnknown, LedgerError, ServiceInvalid
from datp_tasks.local.ports import pick_free_port
from datp_tasks.local.processes import ManagedProcess
from tests.support.eventually import eventually
from tests.support.ledger_world import SERVICE, World

Run = Callable[..., str]


@pytest.fixture
def run(world: World, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Runs a command line and returns what it printed."""
    instance = world.instance()
    world.add_service()
    monkeypatch.setattr(cli, "_ledger", lambda: instance.ledger)
    monkeypatch.setenv("COLUMNS", "160")
    monkeypatch.setenv("DATP_ACTOR", "ann")
    app = typer.Typer()
    cli.add_commands(app)

    def run(*arguments: str) -> str:
        result = CliRunner().invoke(app, list(arguments), catch_exceptions=False)
        assert result.exit_code == 0, result.output
        return result.output

    return run


def as_json(run: Run, *arguments: str) -> Any:
    return json.loads(run(*arguments, "--json"))


def test_claims_show_who_holds_what_until_when_and_under_which_epoch(
    world: World, run: Run
) -> None:
    [one] = world.submit("one")
    [free] = as_json(run, "claims")
    assert (free["claimant"], free["epoch"], free["waiting"]) == (None, 0, 1)
    world.instances[0].tick()
    [held] = as_json(run, "claims", "--service", SERVICE)
    assert held == {
        "service": SERVICE,
        "claimant": world.instances[0].name,
        "epoch": 1,
        "expiry": "2027-01-15T08:00:30+00:00",
        "isLive": True,
        "waiting": 1,
        "head": one,
        "headState": "NEW",
    }
    shown = run("claims")
    for words in (SERVICE, world.instances[0].name, "08:00:30", one[:16]):
        assert words in shown
    world.advance(31)
    assert "over" in run("claims")
    assert as_json(run, "claims", "--service", "nobody") == []


def test_batches_can_be_listed_and_shown(world: World, run: Run) -> None:
    one, two = world.submit("one", "two")
    assert [each["batch"] for each in as_json(run, "batches", "list")] == [one, two]
    world.settle(world.instances[0], rounds=3)
    assert as_json(run, "batches", "list") == []
    both = as_json(run, "batches", "list", "--all", "--service", SERVICE)
    assert [each["state"] for each in both] == ["COMMITTED", "COMMITTED"]
    assert as_json(run, "batches", "list", "--state", "parked") == []
    shown = as_json(run, "batches", "show", SERVICE, one[:10])
    assert [each["verdict"] for each in shown["attempts"]] == ["accepted"]
    assert [each["state"] for each in shown["seen"]] == ["PENDING", "COMMITTED"]
    assert shown["finalAt"] is not None
    text = run("batches", "show", SERVICE, one) + run("batches", "list", "--all")
    for words in (one, "COMMITTED", "accepted", "HTTP 202"):
        assert words in text


def test_an_operator_parks_resumes_resubmits_and_resolves(world: World, run: Run) -> None:
    one, _ = world.submit("one", "two")
    why = ("--reason", "I looked")
    assert "PARKED" in run("batches", "park", SERVICE, one[:8], *why)
    assert "NEW" in run("batches", "resume", SERVICE, one[:8], *why)
    run("batches", "park", SERVICE, one, *why)
    assert "NEW" in run("batches", "resubmit", SERVICE, one, *why)
    run("batches", "park", SERVICE, one, *why)
    assert "INVALID" in run("batches", "resolve", SERVICE, one, "--as", "invalid", *why)
    rows = world.sql("SELECT actor, action, reason FROM operator_action ORDER BY id")
    assert [row.action for row in rows] == [
        *("batch.park", "batch.resume", "batch.park", "batch.resubmit", "batch.park"),
        "batch.resolve",
    ]
    assert {row.reason for row in rows} == {"I looked"}
    assert all(row.actor.startswith("cli ") and row.actor.endswith(" as ann") for row in rows)


def test_what_cannot_be_done_is_said(world: World, run: Run) -> None:
    one, two = world.submit("one", "two")
    why = ("--reason", "x")
    with pytest.raises(BatchBusy):
        run("batches", "resume", SERVICE, one, *why)
    with pytest.raises(BatchUnknown):
        run("batches", "show", SERVICE, "nothing")
    with pytest.raises(LedgerError, match="more than one batch"):
        run("batches", "show", SERVICE, "")
    with pytest.raises(BatchInvalid, match="'odd' is no state"):
        run("batches", "list", "--state", "odd")
    with pytest.raises(LedgerError, match="COMMITTED or as INVALID"):
        run("batches", "resolve", SERVICE, two, "--as", "NEW", *why)


def test_services_are_added_and_listed(world: World, run: Run) -> None:
    url = "http://localhost:8008"
    assert url in run("services", "add", "mine", "--kind", "sawtooth", "--url", url)
    assert {each["service"] for each in as_json(run, "services", "list")} == {SERVICE, "mine"}
    assert "mine" in run("services", "list")
    with pytest.raises(ServiceInvalid, match="not allowed"):
        run("services", "add", "evil", "--kind", "sawtooth", "--url", "http://evil.example")


def test_the_stand_in_is_a_program_of_its_own(tmp_path: Path) -> None:
    port = pick_free_port()
    program = "from datp_tasks.cli import main; main()"
    process = ManagedProcess(
        "ledger-sim",
        (sys.executable, "-c", program, "ledger-sim", "--port", str(port), "--commit-ms", "0"),
        log_path=tmp_path / "log",
    )
    process.start()

    def answers() -> bool:
        try:
            return httpx.get(f"http://127.0.0.1:{port}/sim", trust_env=False).status_code == 200
        except httpx.HTTPError:
            return False

    try:
        eventually(answers)
        # A second one at the same place says so and ends.
        second = ManagedProcess(
            "second",
            (sys.executable, "-c", program, "ledger-sim", "--port", str(port)),
            log_path=tmp_path / "second",
        )
        second.start()
        eventually(lambda: second.exit_code == 1)
        assert "cannot listen at 127.0.0.1" in (tmp_path / "second").read_text()
    finally:
        process.stop()
