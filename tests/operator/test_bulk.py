"""Choosing transactions by what they are, and acting on all of them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from datp_tasks import Pipeline, Sleep
from datp_tasks.cli import operator, top
from datp_tasks.errors import DatabaseUnavailable, FilterInvalid
from datp_tasks.model.actor import Actor
from datp_tasks.model.status import Status
from datp_tasks.operator.selection import Where
from datp_tasks.record.alerts import Alerts
from datp_tasks.record.points import Points
from datp_tasks.record.record_types import Summary
from datp_tasks.testing.kit import Kit
from datp_tasks.transactions.locate import Locator
from tests.support.command_parts import command_parts

Data = dict[str, Any]


@pytest.fixture
def kit(datp: Kit, monkeypatch: pytest.MonkeyPatch) -> Kit:
    @datp.step("t/gate")
    def gate(ctx: Any, data: Data) -> Any:
        return None if ctx.sleeps else Sleep(seconds=3_600)

    @datp.step("t/do")
    def do(ctx: Any, data: Data) -> None: ...

    @datp.step("t/once", on_crash="review")
    def once(ctx: Any, data: Data) -> None: ...

    for name in ("gate", "do", "once"):
        datp.use(Pipeline(name).step(f"t/{name}").build())
    context = command_parts(datp, actor=Actor(name="ann"))
    for module in (operator, top):
        monkeypatch.setattr(module, "connect", lambda: context)
    monkeypatch.setattr(top, "backlog", lambda celery, group: 0)
    monkeypatch.setenv("COLUMNS", "200")
    return datp


def run(*words: str, code: int = 0) -> str:
    app = typer.Typer()
    operator.add_commands(app)
    top.add_commands(app)
    result = CliRunner().invoke(app, list(words), catch_exceptions=False)
    assert result.exit_code == code, result.output
    return result.output


def ids(kit: Kit, *texts: str) -> set[str]:
    return {each.tx_id for each in kit.operator.choose(Where.from_texts(texts))}


def test_transactions_are_chosen_by_status_pipeline_owner_group_and_age(kit: Kit) -> None:
    asleep = kit.submit("gate", {}, owner="ann")
    kit.clock.advance(seconds=600)
    ended = kit.submit("do", {}, owner="bob")
    assert ids(kit) == {asleep, ended}
    assert ids(kit, "status=sleeping") == {asleep}
    assert ids(kit, "status=success") == {ended}
    assert ids(kit, "status=running") == set()
    assert ids(kit, "pipeline=gate") == ids(kit, "owner=ann") == {asleep}
    assert ids(kit, "older-than=5m") == {asleep}
    assert ids(kit, "newer-than=5m") == {ended}
    assert ids(kit, "group=master", "status=sleeping") == {asleep}
    assert ids(kit, "group=elsewhere") == set()
    assert len(list(kit.operator.choose(Where(), rows_max=1))) == 1


def test_what_has_ended_is_not_looked_at_for_an_action(
    kit: Kit, monkeypatch: pytest.MonkeyPatch
) -> None:
    asleep = kit.submit("gate", {}, owner="ann")
    for _ in range(3):
        kit.submit("do", {}, owner="ann")
    looked: list[str] = []
    overlay = Locator.overlay_many

    def noting(locator: Locator, page: Sequence[Summary], **options: Any) -> list[Summary]:
        looked.extend(each.tx_id for each in page)
        return overlay(locator, page, **options)

    monkeypatch.setattr(Locator, "overlay_many", noting)
    chosen = kit.operator.choose(Where(owner="ann"), open_only=True)
    assert [each.tx_id for each in chosen] == looked == [asleep]
    assert list(kit.operator.choose(Where(status=Status.SUCCESS), open_only=True)) == []
    # The limit counts what can be acted on, not the history before it.
    chosen_by = ("--where", "owner=ann", "--limit", "1", "--reason", "a test")
    shown = run("bulk", "cancel", *chosen_by, "--dry-run", "--json")
    assert [each["txId"] for each in json.loads(shown)] == [asleep]


def test_transactions_are_chosen_and_sorted_by_search_attributes(kit: Kit) -> None:
    search = {"amount": {"from": "input.amount", "type": "decimal"}}
    kit.use(Pipeline("paid", search=search).step("t/gate").build())
    cheap, dear, dearest = (kit.submit("paid", {"amount": each}) for each in ("9", "10", "100"))
    kit.submit("gate", {"amount": "50"})
    assert ids(kit, "attr.amount>=10") == {dear, dearest}
    assert ids(kit, "attr.amount>=10", "attr.amount<100") == {dear}
    assert ids(kit, "attr.amount=9", "status=sleeping") == {cheap}
    rows = json.loads(run("list", "--order", "-amount", "--json"))
    assert [each["txId"] for each in rows] == [dearest, dear, cheap]
    rows = json.loads(run("list", "--where", "attr.amount<100", "--order", "amount", "--json"))
    assert [each["txId"] for each in rows] == [cheap, dear]
    said = run("bulk", "cancel", "--where", "attr.amount>9.5", "--reason", "too dear")
    assert "2 of 2 done" in said
    assert kit.status(cheap).status is Status.SLEEPING
    with pytest.raises(FilterInvalid):
        list(kit.operator.choose(Where(), order="a b"))


@pytest.mark.parametrize(
    "texts",
    [
        ["owner=ann", "owner=bob"],
        ["status=sleeping", "pipeline=p", "status=sleeping"],
        ["attr.amount>=100", "attr.amount>=1"],
    ],
)
def test_a_filter_that_is_given_twice_is_refused(texts: list[str]) -> None:
    """The last one alone would choose what the first one leaves out."""
    with pytest.raises(FilterInvalid, match="twice"):
        Where.from_texts(texts)


@pytest.mark.parametrize("text", ["attr.amount", "attr.=1", "attr.a b=1", "attr."])
def test_a_condition_that_makes_no_sense_is_named(text: str) -> None:
    with pytest.raises(FilterInvalid):
        Where.from_texts([text])


@pytest.mark.parametrize(
    "text", ["status", "status=", "colour=red", "status=dead", "older-than=5", "older-than=xm"]
)
def test_a_filter_that_makes_no_sense_is_named(text: str) -> None:
    with pytest.raises(FilterInvalid):
        Where.from_texts([text])


def test_an_outage_is_not_called_a_refusal(kit: Kit, monkeypatch: pytest.MonkeyPatch) -> None:
    """The request to stop is kept by then, and the reconciler sends it."""
    asleep = kit.submit("gate", {})

    def unavailable(*_: Any) -> None:
        raise DatabaseUnavailable

    with monkeypatch.context() as outage:
        outage.setattr(Points, "ask_to_stop", unavailable)
        done = kit.operator.act_on_many("cancel", Where(), [asleep], reason="a test")
        with pytest.raises(DatabaseUnavailable):
            list(done)
    kit.recover()
    assert kit.status(asleep).status is Status.CANCELLED


def test_a_bulk_cancel_is_shown_first_then_done_and_audited(kit: Kit) -> None:
    txs = [kit.submit("gate", {}) for _ in range(3)]
    kit.submit("do", {})
    shown = run("bulk", "cancel", "--where", "pipeline=gate", "--reason", "wrong", "--dry-run")
    assert "3 would be changed" in shown
    assert all(kit.status(tx).status is Status.SLEEPING for tx in txs)
    said = run("bulk", "cancel", "--where", "pipeline=gate", "--reason", "wrong rate")
    assert "3 of 3 done" in said
    assert {kit.status(tx).status for tx in txs} == {Status.CANCELLED}
    with kit.connections.engine.connect() as sql:
        row = sql.exec_driver_sql(
            "SELECT action, reason, details FROM operator_action WHERE action LIKE 'bulk-%%'"
        ).one()
        each = sql.exec_driver_sql(
            "SELECT actor, subject FROM operator_action WHERE action = 'transaction.cancel'"
        ).all()
    assert {(row.actor, row.subject) for row in each} == {("ann", tx) for tx in txs}
    assert (row.action, row.reason) == ("bulk-cancel", "wrong rate")
    assert json.loads(row.details) == {"where": {"pipeline": "gate"}, "count": 3}


def test_a_bulk_action_needs_a_filter(kit: Kit) -> None:
    assert "at least one filter" in run("bulk", "wake", "--reason", "x", code=2)


def test_a_bulk_wake_ends_sleeps(kit: Kit) -> None:
    txs = [kit.submit("gate", {}) for _ in range(3)]
    command = ("bulk", "wake", "--where", "status=sleeping", "--reason", "now", "--json")
    assert {each["txId"] for each in json.loads(run(*command, "--dry-run"))} == set(txs)
    done = json.loads(run(*command))
    assert {each["txId"] for each in done if each["ok"]} == set(txs)
    assert {kit.status(tx).status for tx in txs} == {Status.SUCCESS}


def test_a_retry_gets_each_kind_going(kit: Kit) -> None:
    kit.crash_at("hop.after_step")
    parked = kit.submit("once", {})
    kit.recover()
    asleep = kit.submit("gate", {})
    kit.lose_bells()
    unheard = kit.submit("do", {})
    kit.lose_bells(False)
    assert kit.status(parked).status is Status.IN_DOUBT
    for tx in (parked, asleep, unheard):
        run("retry", tx)
        assert kit.status(tx).status is Status.SUCCESS
    # Where there is nothing to do, the audit does not say that it was done.
    assert "nothing to do" in run("retry", parked)
    with kit.connections.engine.connect() as sql:
        noted = sql.exec_driver_sql(
            "SELECT subject FROM operator_action WHERE action = 'transaction.retry'"
        ).all()
    assert [row.subject for row in noted] == [unheard]


def test_lists_alerts_and_answers_are_there_for_people_and_programs(kit: Kit) -> None:
    tx = kit.submit("gate", {})
    assert tx in run("list", "--where", "status=sleeping")
    assert json.loads(run("list", "--json"))[0]["txId"] == tx
    assert "no transaction matches" in run("list", "--where", "pipeline=none")
    assert json.loads(run("why", tx, "--json"))["cause"] == "sleeping"
    assert "datp wake" in run("why", tx)
    assert "no alert is open" in run("alerts")


def test_an_alert_is_closed_by_hand_and_the_audit_table_knows(kit: Kit) -> None:
    Alerts(kit.connections.engine, kit.connections.clock).raise_alert("late", "tx", "it was late")
    assert "it was late" in run("alerts", code=operator.ALERTS_OPEN)
    assert json.loads(run("alerts", "--json", code=operator.ALERTS_OPEN))[0]["kind"] == "late"
    assert "cleared" in run("clear-alert", "late", "tx", "--reason", "called the client")
    run("clear-alert", "late", "tx", "--reason", "again", code=1)
    run("alerts")
    with kit.connections.engine.connect() as sql:
        found = sql.exec_driver_sql(
            "SELECT subject, reason FROM operator_action WHERE action = 'clear-alert'"
        ).all()
    assert [tuple(row) for row in found] == [("late tx", "called the client")]


def test_top_shows_groups_rates_and_long_runners(kit: Kit) -> None:
    for _ in range(5):
        kit.submit("do", {})
    kit.clock.advance(seconds=5)
    kit.run_job("meter")
    found = json.loads(run("top", "--json"))
    assert found["rates"]["ended"] == 0.5
    assert found["lists"]["processingZ"] == 0
    assert "Groups" in run("top", "--once")
    assert top.plot([0, 1, 2]) == " ▄█"
    assert top.plot([0, 0]) == "  "
