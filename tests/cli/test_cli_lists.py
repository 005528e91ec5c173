"""Lists fit into 80 columns, and nothing that a person copies from them is cut."""

from __future__ import annotations

import io
from collections.abc import Callable
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any

import pytest
import typer
from rich.console import Console
from typer.testing import CliRunner

from datp_tasks import Pipeline, Sleep
from datp_tasks.cli import (
    api_keys,
    approvals,
    endpoints,
    groups,
    ledger,
    mappings,
    nodes,
    operator,
    pipelines,
    resolve,
    retention,
    sealing,
    timeouts,
    top,
    webhooks,
)
from datp_tasks.cli.terminal_tables import list_table, print_list, short_time
from datp_tasks.model.actor import Actor, Role
from datp_tasks.model.grants import Grants
from datp_tasks.pipelines.mapping_store import MappingStore
from datp_tasks.record.alerts import Alerts
from datp_tasks.record.api_keys import ApiKeys
from datp_tasks.testing import Kit
from tests.record.test_groups import register_node
from tests.support.command_parts import command_parts

COLUMNS = 80
NOW = datetime(2026, 11, 16, 12, 3, 55, tzinfo=UTC)
MODULES = (
    *(api_keys, approvals, endpoints, groups, ledger, mappings, nodes, operator, pipelines),
    *(resolve, retention, sealing, timeouts, top, webhooks),
)
PEPPER = "a pepper of the test, longer than thirty-two characters"


@pytest.fixture
def run(datp: Kit, monkeypatch: pytest.MonkeyPatch) -> Callable[..., list[str]]:
    """Runs a command at 80 columns; every line fits."""
    keys = ApiKeys(datp.connections.engine, datp.clock, PEPPER)
    context = command_parts(
        datp, actor=Actor(name="ann"), api_keys=keys, secrets=datp.connections.seals.secrets
    )
    app = typer.Typer()
    for module in MODULES:
        for name in ("connect", "connect_sql"):
            monkeypatch.setattr(module, name, lambda: context, raising=False)
        module.add_commands(app)
    monkeypatch.setattr(top, "backlog", lambda celery, group: 0)
    monkeypatch.setenv("COLUMNS", str(COLUMNS))

    def run(*words: str) -> list[str]:
        result = CliRunner().invoke(app, list(words))
        assert result.exit_code in (0, operator.ALERTS_OPEN), result.output
        lines = result.output.splitlines()
        assert max(map(len, lines)) <= COLUMNS, result.output
        return lines

    return run


@pytest.fixture
def waiting(datp: Kit) -> str:
    """A transaction with long names that sleeps, expires and has an end to tell."""

    @datp.step("a-long-name-of-a-step/that-waits-for-a-person")
    def gate(ctx: Any, data: dict[str, Any]) -> Sleep:
        return Sleep(switch="go", seconds=3_600)

    name = "international-transfers-with-approval"
    datp.use(Pipeline(name).step("a-long-name-of-a-step/that-waits-for-a-person").build())
    return datp.submit(
        name,
        {},
        owner="the-bank-of-north-and-south",
        external_id="invoice-2026-11-16-000000000000000000004711",
        expires_in_s=86_000,
    )


def holds(lines: list[str], word: str) -> bool:
    return any(word in line.split() for line in lines)


def test_transactions_are_listed_with_whole_ids(
    run: Callable[..., list[str]], datp: Kit, waiting: str
) -> None:
    lines = run("list")
    assert holds(lines, waiting) and holds(lines, "sleeping")
    datp.run_job("timeout_handler")
    assert holds(run("timeouts"), waiting)


def test_what_runs_is_shown_with_whole_ids(
    run: Callable[..., list[str]], datp: Kit, waiting: str
) -> None:
    datp.lose_bells()
    datp.set_switch(waiting, "go", True)
    live = datp.connections.live
    live.claim_many([(waiting, int(live.fields_many([waiting])[0]["sequence"]))], "a-node-" * 5)
    lines = run("top", "--once")
    assert holds(lines, waiting)
    assert "step 1" in " ".join(lines) and "approval/0" not in "".join(lines)


def test_alerts_are_listed_with_whole_subjects(
    run: Callable[..., list[str]], datp: Kit, waiting: str
) -> None:
    alerts = Alerts(datp.connections.engine, datp.clock)
    alerts.raise_alert("webhook-dead", waiting, "a sentence that is long enough to be folded " * 4)
    lines = run("alerts")
    assert holds(lines, waiting) and holds(lines, "webhook-dead")


@pytest.fixture
def kept_in_versions(datp: Kit, monkeypatch: pytest.MonkeyPatch) -> None:
    store = datp.connections.pipelines
    monkeypatch.setattr(pipelines, "_connect", lambda: SimpleNamespace(pipelines=store))
    held = MappingStore(datp.connections.engine, store)
    monkeypatch.setattr(mappings, "_mappings", lambda: held)


@pytest.mark.usefixtures("kept_in_versions")
def test_a_list_without_rows_says_so_in_a_sentence(run: Callable[..., list[str]]) -> None:
    """A bare header would look like a fault."""
    lists = {
        ("list",): "no transaction matches",
        ("alerts",): "no alert is open",
        ("keys", "list"): "no keys; `datp keys create` makes one",
        ("claims",): "no ledger services; `datp services add` names one",
        ("claims", "--service", "[/x]"): "no service [/x]",
        ("services", "list"): "no ledger services; `datp services add` names one",
        ("batches", "list"): "no batch is open; --all shows final ones, too",
        ("batches", "list", "--all"): "no batch matches",
        ("webhooks", "list"): "no such deliveries",
        ("endpoints", "list"): "no endpoints",
        ("approvals", "list"): "no approval is waited for",
        ("groups", "list"): "no group was told anything, and no worker is alive",
        ("retention", "list"): "there is no rule: everything is kept as the settings say",
        ("secrets", "list"): "no secrets; `datp secrets set` stores one",
        ("pipelines", "list"): "no pipelines; `datp pipelines apply` stores one from a file",
        ("mappings", "list"): "no mappings; `datp mappings apply` stores one from a file",
    }
    assert {words: run(*words) for words in lists} == {
        words: [sentence] for words, sentence in lists.items()
    }


def test_grants_of_keys_stand_on_lines_of_their_own(
    run: Callable[..., list[str]], datp: Kit
) -> None:
    store = ApiKeys(datp.connections.engine, datp.clock, PEPPER)
    texts = ["read", "submit:payments-of-the-north", "submit:payments-of-the-south"]
    made = store.create("acme", None, actor=Actor(name="ann"), grants=Grants.parse(texts))
    _, listed, *granted = run("keys", "list")
    assert listed.split() == [made.key.id, "live", "client", "never", "acme"]
    assert " ".join(granted).split() == [made.key.id, "may", *sorted(texts)]
    store.create("north", None, actor=Actor(name="ann"), grants=Grants.parse([]))
    store.create("south", None, actor=Actor(name="ann"))
    assert run("keys", "list", "--owner", "north")[-1].endswith("its list of grants is empty")
    assert run("keys", "list", "--owner", "south")[-1].endswith("may what a client may by default")


def test_keys_are_listed_with_whole_ids(run: Callable[..., list[str]], datp: Kit) -> None:
    store = ApiKeys(datp.connections.engine, datp.clock, PEPPER)
    made = store.create(
        "the-bank-of-north-and-south",
        Role.ADMIN,
        actor=Actor(name="ann"),
        name="for the tills on the ground floor and in the garden",
        expires_in_s=86_400 * 30,
    )
    assert holds(run("keys", "list"), made.key.id)
    # What `datp up` makes takes a line.
    store.create(
        "local", Role.ADMIN, actor=Actor(name="ann"), name="made by datp up", expires_in_s=86_400
    )
    assert len(run("keys", "list", "--owner", "local")) == 2


def test_nodes_are_listed_with_whole_names(run: Callable[..., list[str]], datp: Kit) -> None:
    register_node(datp)
    assert holds(run("nodes", "--steps"), "n1")


@pytest.mark.parametrize(
    ("moment", "shown"),
    [
        (NOW.replace(hour=0, minute=0, second=1), "00:00:01"),
        (NOW.replace(hour=23), "23:03:55"),
        (NOW.replace(day=15, hour=23, minute=59), "Nov 15 23:59"),
        (NOW.replace(year=2025), "2025-11-16"),
        (None, "-"),
    ],
)
def test_times_are_as_short_as_today_allows(moment: datetime | None, shown: str) -> None:
    assert short_time(moment, NOW) == shown


@pytest.mark.parametrize("width", [20, 60, 80, 200])
def test_whole_columns_survive_any_width(width: int) -> None:
    console = Console(file=io.StringIO(), width=width)
    rows = [("t" * 36, "[red]internal-error[/red]", "x" * 90)]
    table = list_table(("id", "status", "note"), rows, whole=("id", "status"))
    print_list(console, table, empty="nothing")
    assert isinstance(console.file, io.StringIO)
    text = console.file.getvalue()
    assert "t" * 36 + " internal-error" in text
    assert text.count("x") == 90
