"""Two people at the command line: asking, deciding, acting alone, and what a viewer may read."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from dataclasses import replace
from types import SimpleNamespace

import pytest

from datp_tasks import Pipeline, cli
from datp_tasks.cli import command_context
from datp_tasks.cli.acting import KEY_VARIABLE
from datp_tasks.model.actor import Actor, Role
from datp_tasks.record.api_keys import ApiKeys
from datp_tasks.testing import Kit
from tests.support.archive_world import World

PEPPER = "a pepper of forty characters, for a test"
Run = Callable[..., tuple[int, str]]


POLICY = """
rules:
  - {action: pipeline.use, pipeline: [one, two, three], approvals: 1}
  - {action: pipeline.use, approvals: 0}
"""


pytestmark = pytest.mark.kit(policy=POLICY, key_pepper=PEPPER)


@pytest.fixture
def run(datp: Kit, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    """`datp …` with the key of a person; its exit code, and all that it prints."""
    settings = replace(datp.settings, key_pepper=PEPPER)
    monkeypatch.setattr(command_context, "Settings", SimpleNamespace(from_env=lambda _: settings))
    monkeypatch.setenv("COLUMNS", "200")
    connections = datp.connections
    keys = ApiKeys(connections.engine, connections.clock, PEPPER)

    def run(who: str, role: Role, *words: str) -> tuple[int, str]:
        monkeypatch.setenv(KEY_VARIABLE, keys.create(who, role, actor=Actor(name="test")).text)
        monkeypatch.setattr(sys, "argv", ["datp", *words])
        with pytest.raises(SystemExit) as ended:
            cli.main()
        shown = capsys.readouterr()
        return int(ended.value.code or 0), shown.out + shown.err

    return run


def in_use(kit: Kit, name: str) -> str | None:
    return {each.name: each.version_in_use for each in kit.connections.pipelines.list()}[name]


def newest(kit: Kit) -> str:
    return str(kit.operator.approvals.store.page(rows_max=1)[0].id)


def stored(kit: Kit, name: str) -> str:
    definition = Pipeline(name).step("util/fixed-reply", params={"output": {}}).build()
    kit.connections.pipelines.apply(definition)
    return definition.version


def test_one_asks_and_another_decides(datp: Kit, run: Run) -> None:
    version = stored(datp, "one")
    code, told = run("ann", Role.ADMIN, "pipelines", "use", "one", version, "--reason", "tested")
    number = newest(datp)
    assert (code, f"datp approvals approve {number}" in told) == (7, True), told
    assert "tested" in run("bob", Role.APPROVER, "approvals", "list")[1]
    assert json.loads(run("eve", Role.VIEWER, "approvals", "show", number, "--json")[1])["id"] > 0
    assert run("ann", Role.ADMIN, "approvals", "approve", number)[0] == 1
    assert run("dan", Role.OPERATOR, "approvals", "approve", number)[0] == 1
    assert in_use(datp, "one") is None
    code, told = run("bob", Role.APPROVER, "approvals", "approve", number, "--note", "read it")
    assert (code, "executed" in told) == (0, True), told
    assert in_use(datp, "one") == version
    assert "no approval is waited for" in run("bob", Role.APPROVER, "approvals", "list")[1]
    assert "executed" in run("bob", Role.APPROVER, "approvals", "list", "--all")[1]


def test_one_who_refuses_says_why(datp: Kit, run: Run) -> None:
    version = stored(datp, "two")
    run("ann", Role.ADMIN, "pipelines", "use", "two", version)
    number = newest(datp)
    assert run("bob", Role.APPROVER, "approvals", "reject", number)[0] != 0
    code, told = run("bob", Role.APPROVER, "approvals", "reject", number, "--note", "not on Friday")
    assert (code, "rejected" in told) == (0, True), told
    assert run("carl", Role.APPROVER, "approvals", "approve", number)[0] == 1
    assert in_use(datp, "two") is None


def test_acting_alone_leaves_an_alert_that_another_person_closes(datp: Kit, run: Run) -> None:
    version = stored(datp, "three")
    use = ("pipelines", "use", "three", version, "--break-glass")
    assert run("ann", Role.ADMIN, *use)[0] == 2
    assert run("ann", Role.ADMIN, *use, "--reason", "the old one pays twice")[0] == 0
    assert in_use(datp, "three") == version
    code, told = run("eve", Role.VIEWER, "alerts")
    assert (code, "break-glass" in told) == (5, True), told
    clear = ("clear-alert", "break-glass", f"approval {newest(datp)}", "--reason", "looked into it")
    assert run("ann", Role.ADMIN, *clear)[0] == 1
    assert run("bob", Role.OPERATOR, *clear)[0] == 0
    assert run("eve", Role.VIEWER, "alerts")[0] == 0
    [closed] = datp.operator.approvals.store.page(rows_max=1)
    assert (closed.break_glass, closed.closed_by) == (True, "bob")
    assert run("ann", Role.ADMIN, "audit", "actions")[0] == 0


def test_a_retry_that_needs_another_person_says_so_with_its_exit_code(datp: Kit, run: Run) -> None:
    world = World(datp)
    tx_id = world.crashed("pay", "hop.after_step", nth=2)
    datp.recover()
    code, told = run("ann", Role.OPERATOR, "retry", tx_id, "--reason", "again")
    assert (code, f"datp approvals approve {newest(datp)}" in told) == (7, True), told
    shown = run("bob", Role.APPROVER, "approvals", "show", newest(datp))[1]
    assert "'step': 'step 2 of pay'" in shown and "pay/1" not in shown
    shown = run("bob", Role.APPROVER, "approvals", "show", newest(datp), "--json")[1]
    assert json.loads(shown)["params"]["step"] == "pay/1"


def test_a_viewer_reads_no_payload(datp: Kit, run: Run) -> None:
    datp.use(Pipeline("ask").step("util/approval", params={"note": "Pay {{iban}}?"}).build())
    tx_id = datp.submit("ask", {"iban": "DE00"})
    number = newest(datp)
    for words in (
        ("list", "--json"),
        ("approvals", "list"),
        ("approvals", "list", "--json"),
        ("approvals", "show", number),
        ("approvals", "show", number, "--json"),
        ("why", tx_id),
    ):
        code, told = run("eve", Role.VIEWER, *words)
        assert (code, "DE00" in told) == (0, False), told
    assert "Pay DE00?" in run("bob", Role.APPROVER, "approvals", "show", number)[1]


ACME = ("owner", "acme")


def rules(run: Run) -> list[tuple[str, str, int]]:
    code, shown = run("eve", Role.VIEWER, "retention", "list", "--json")
    assert code == 0, shown
    return [(each["kind"], each["name"], each["days"]) for each in json.loads(shown)]


def test_two_people_decide_how_long_an_owner_is_kept(datp: Kit, run: Run) -> None:
    assert "there is no rule" in run("eve", Role.VIEWER, "retention", "list")[1]
    wanted = ("retention", "set", *ACME, "30", "--reason", "contract 7")
    code, shown = run("ann", Role.ADMIN, *wanted)
    assert (code, rules(run)) == (7, []) and "needs another person" in shown
    assert run("ann", Role.ADMIN, "approvals", "approve", newest(datp))[0] != 0
    assert run("bob", Role.APPROVER, "approvals", "approve", newest(datp))[0] == 0
    assert rules(run) == [(*ACME, 30)]
    assert "acme" in run("eve", Role.VIEWER, "retention", "list")[1]
    removed = ("retention", "remove", *ACME, "--reason", "over")
    assert run("ann", Role.ADMIN, *removed)[0] == 7
    refused = ("approvals", "reject", newest(datp), "--note", "not yet")
    assert (run("bob", Role.APPROVER, *refused)[0], rules(run)) == (0, [(*ACME, 30)])
    code, shown = run("ann", Role.ADMIN, *removed, "--break-glass")
    assert (code, rules(run)) == (0, []) and "the settings count again" in shown
    assert run("ann", Role.ADMIN, *removed) == (1, "there is no such rule\n")
    with datp.connections.engine.connect() as sql:
        found = sql.exec_driver_sql(
            "SELECT action, subject, details ->> 'days' AS days, details ->> 'before' AS before "
            "FROM operator_action WHERE action LIKE 'retention.%%' ORDER BY id"
        ).all()
    assert [tuple(each) for each in found] == [
        ("retention.set", "owner acme", "30", "none"),
        ("retention.remove", "owner acme", None, "30"),
    ]
    assert "break-glass" in run("eve", Role.VIEWER, "alerts")[1]


def test_a_rule_that_was_changed_meanwhile_is_not_changed_by_an_old_consent(
    datp: Kit, run: Run
) -> None:
    for days in ("30", "400"):
        run("ann", Role.ADMIN, "retention", "set", *ACME, days, "--reason", "contract 7")
    second = int(newest(datp))
    assert run("bob", Role.APPROVER, "approvals", "approve", str(second))[0] == 0
    code, shown = run("bob", Role.APPROVER, "approvals", "approve", str(second - 1))
    assert code != 0 and "was none and is 400" in shown
    assert rules(run) == [(*ACME, 400)]


@pytest.mark.parametrize(
    ("role", "words"),
    [
        (Role.OPERATOR, ("set", *ACME, "30", "--reason", "x")),
        (Role.ADMIN, ("set", *ACME, "0", "--reason", "x")),
        (Role.ADMIN, ("set", "table", "acme", "30", "--reason", "x")),
        (Role.ADMIN, ("set", *ACME, "30")),
        (Role.ADMIN, ("set", *ACME, "30", "--reason", " ")),
        (Role.OPERATOR, ("remove", *ACME, "--reason", "x")),
    ],
)
def test_a_rule_that_may_not_be_is_refused_without_a_trace(
    datp: Kit, run: Run, role: Role, words: tuple[str, ...]
) -> None:
    code, shown = run("ann", role, "retention", *words)
    assert code not in (0, 7) and "Traceback" not in shown
    assert datp.operator.approvals.store.page(rows_max=1) == []
