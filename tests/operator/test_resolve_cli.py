"""`datp doctor`, `datp resolve`, `datp replay` and `datp audit` as people type them."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

import pytest
import typer
from typer.testing import CliRunner, Result

from datp_tasks.cli import resolve as cli
from datp_tasks.cli.families import FAMILIES
from datp_tasks.errors import DatpError, DecisionInvalid, TransactionFinal, TransactionUnknown
from datp_tasks.model.actor import Actor
from datp_tasks.testing import Kit
from tests.support.archive_world import World


@pytest.fixture(autouse=True)
def connected(datp: Kit, monkeypatch: pytest.MonkeyPatch) -> None:
    context = SimpleNamespace(
        client=datp.client, operator=datp.operator, actor=Actor(name="cli ann")
    )
    monkeypatch.setattr(cli, "connect", lambda: context)
    monkeypatch.setenv("COLUMNS", "200")


def run(*words: str, code: int = 0, fails: type[DatpError] | None = None) -> Result:
    app = typer.Typer()
    cli.add_commands(app)
    result = CliRunner().invoke(app, list(words), catch_exceptions=fails is not None)
    if fails is None:
        assert result.exit_code == code, result.output
    else:
        assert isinstance(result.exception, fails), result.output
    return result


def as_json(*words: str, code: int = 0) -> Any:
    return json.loads(run(*words, "--json", code=code).output)


@pytest.fixture
def in_doubt(datp: Kit, world: World) -> str:
    tx_id = world.crashed("pay", "hop.after_step", nth=2)
    datp.recover()
    return tx_id


def test_doctor_of_a_healthy_system(datp: Kit, world: World) -> None:
    datp.submit("rest", {})
    output = run("doctor").output
    assert "healthy" in output
    assert "1 in sleepingZ" in output
    assert "entries on their way to SQL" in output
    shown = as_json("doctor")
    assert (shown["healthy"], shown["inDoubt"], shown["inFlight"]) == (True, [], [])


def test_doctor_shows_what_is_wrong_and_has_an_exit_code(
    datp: Kit, world: World, in_doubt: str
) -> None:
    dead = world.crashed("quick", "hop.after_step")
    datp.clock.advance(seconds=datp.settings.node_stale_ms / 1_000 + 1)
    world.archive()
    stray = datp.submit("rest", {})
    live = datp.connections.live
    live.redis.zadd(live.keys.of_tx(stray, "exceptionZ"), {stray: 1})
    live.redis.set(live.keys.of_tx(dead, "mark"), 0)
    output = run("doctor", code=5).output
    for words in (
        *(dead, "(gone)", "in the middle of its step", in_doubt, "a person must decide"),
        *(stray, "Redis has lost writes in shards", "something is wrong"),
    ):
        assert words in output
    # One number for one step: the place beside the sentence that says where it stands.
    assert "step 2 of pay" in output and "pay/1" not in output and "quick/0" not in output
    shown = as_json("doctor", code=5)
    assert [each["place"] for each in shown["inDoubt"]] == ["pay/1"]
    assert [each["txId"] for each in shown["inDoubt"]] == [in_doubt]
    [flying] = [each for each in shown["inFlight"] if each["txId"] == dead]
    assert (flying["orphaned"], flying["midStep"]) == (True, True)
    assert stray in {each["txId"] for each in shown["violations"]}
    assert shown["lostShards"] == [dead[1:3]]
    live.redis.zrem(live.keys.of_tx(stray, "exceptionZ"), stray)


def test_resolve_decides_and_keeps_who_and_why(datp: Kit, world: World, in_doubt: str) -> None:
    decide = ("--done", "--reason", "seen", "--output", '{"paid": 1}')
    assert "decided; the transaction is success" in run("resolve", in_doubt, *decide).output
    assert datp.status(in_doubt).output == {"paid": 1, "booked": 1}
    [action] = world.sql("SELECT actor, reason FROM operator_action WHERE action = 'resolve'")
    assert action.actor.startswith("cli ")
    assert action.reason == "seen"


@pytest.mark.parametrize(("flag", "status"), [("--redo", "success"), ("--fail", "failed")])
def test_resolve_shows_the_transaction_as_json(in_doubt: str, flag: str, status: str) -> None:
    assert as_json("resolve", in_doubt, flag, "--reason", "r")["status"] == status


def test_resolve_refuses_what_is_no_decision(datp: Kit, world: World, in_doubt: str) -> None:
    for flags in ((), ("--done", "--redo")):
        assert run("resolve", in_doubt, *flags, "--reason", "r", code=2).exit_code == 2
    run("resolve", in_doubt, "--done", fails=DecisionInvalid)
    run("resolve", in_doubt, "--redo", "--reason", "r", "--output", "{}", fails=DecisionInvalid)
    run("resolve", in_doubt, "--done", "--reason", "r", "--output", "{", fails=DecisionInvalid)
    run("resolve", "t00-nobody", "--done", "--reason", "r", fails=TransactionUnknown)
    ended = datp.submit("quick", {})
    run("resolve", ended, "--done", "--reason", "r", fails=TransactionFinal)
    assert world.status(in_doubt) == "in-doubt"


def test_replay_shows_every_change_and_where_it_leads(datp: Kit, world: World) -> None:
    tx_id = datp.submit("wait", {"[red]": "markup"})
    datp.client.set_switch(tx_id, "go", 1)
    world.archive()
    output = run("replay", tx_id).output
    for words in ("claim", "sleep", "switch-wake", "final", "leads to: success", "[red]"):
        assert words in output
    assert "its chain is whole" in output
    shown = as_json("replay", tx_id)
    assert [each["kind"] for each in shown["entries"]][:3] == ["claim", "sleep", "switch-wake"]
    assert (shown["status"], shown["faults"]) == ("success", [])
    assert shown["state"]["data"] == {"[red]": "markup", "go": 1, "booked": 1}


def test_replay_and_audit_name_what_does_not_fit(datp: Kit, world: World) -> None:
    good, bad = datp.submit("wait", {}), datp.submit("wait", {})
    world.archive()
    assert "0 do not fit" in run("audit", "--all").output
    world.sql("UPDATE tx_journal SET entries = entries || ' ' WHERE tx_id = :tx", tx=bad)
    assert "row 1 of its journal was altered" in run("replay", bad, code=5).output
    output = run("audit", code=5).output
    assert bad in output
    assert good not in output
    assert "2 of 2 audited" in output
    shown = as_json("audit", "--all", code=5)
    assert (shown["audited"], [each["txId"] for each in shown["wrong"]]) == (2, [bad])


def test_an_audit_may_be_a_sample(datp: Kit, world: World) -> None:
    for _ in range(6):
        datp.submit("wait", {})
    assert as_json("audit", "--sample", "4", "--seed", "1")["audited"] == 4
    assert run("audit", "--all", "--sample", "4", code=2).exit_code == 2


def test_the_commands_are_part_of_datp() -> None:
    assert {"doctor", "resolve", "replay", "audit"} <= FAMILIES["resolve"].keys()
