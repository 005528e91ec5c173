"""The step types and pipelines of the payments example."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import pytest
from sqlalchemy import Connection, Engine

from datp_tasks import Fail, Sleep
from datp_tasks.engine.registry import discover, registry
from datp_tasks.pipelines.files import load_definitions
from examples.payments import PIPELINES_FOLDER, STEPS_MODULE, audit, ledger, steps, tables

TRANSFER = {"from": "ann", "to": "bob", "amount": 400, "currency": "EUR"}
HIGH = TRANSFER | {"amount": 100_001}
KYC = {"above": 100_000, "seconds": 60}


@dataclass(kw_only=True)
class HandMadeContext:
    sql: Connection | None = None
    tx_id: str = "tx"
    params: Mapping[str, Any] = field(default_factory=dict)
    switches: Mapping[str, Any] = field(default_factory=dict)
    reports: list[Any] = field(default_factory=list)

    def progress(self, report: Any) -> None:
        self.reports.append(report)

    def switch(self, name: str) -> Any:
        return self.switches.get(name)


@pytest.fixture
def ctx(payments_engine: Engine) -> Iterator[HandMadeContext]:
    tables.create_tables(payments_engine)
    with payments_engine.connect() as connection:
        ledger.open_account(connection, "house", "EUR", is_house=True)
        ledger.open_account(connection, "ann", "EUR")
        ledger.open_account(connection, "bob", "EUR")
        ledger.open_account(connection, "yen", "JPY")
        ledger.deposit(connection, "d", house="house", account="ann", amount=1_000)
        yield HandMadeContext(sql=connection)
        connection.rollback()


def test_the_pipelines_have_no_mistakes() -> None:
    discover([STEPS_MODULE])
    definitions = load_definitions([PIPELINES_FOLDER], steps_max=200)
    assert [
        (each.name, each.node_group, each.startable, each.on_error) for each in definitions
    ] == [
        ("kyc", "kyc", False, "rollback"),
        ("settlement", "master", True, "rollback"),
        ("transfer", "master", True, "rollback"),
    ]
    for definition in definitions:
        for step in definition.steps:
            check = registry.get(step.type).check_function
            assert check is None or check(step.params) == []


def test_a_good_transfer_is_valid() -> None:
    assert steps.validate(HandMadeContext(), TRANSFER) is None


@pytest.mark.parametrize(
    ("change", "mistake"),
    [
        ({"from": ""}, "from must be the id of an account"),
        ({"to": 7}, "to must be the id of an account"),
        ({"to": "ann"}, "from and to must be different accounts"),
        ({"amount": 1.0}, "amount must be a whole number"),
        ({"amount": True}, "amount must be a whole number"),
        ({"amount": 0}, "amount must be a whole number"),
        ({"amount": "400"}, "amount must be a whole number"),
        ({"currency": "eur"}, "currency must be three capital letters"),
    ],
)
def test_mistakes_of_a_transfer_are_named(change: dict[str, Any], mistake: str) -> None:
    with pytest.raises(Fail, match=mistake):
        steps.validate(HandMadeContext(), TRANSFER | change)


def test_reserve_commit_and_their_rollbacks(ctx: Any) -> None:
    assert ctx.sql is not None
    reserved = steps.reserve(ctx, TRANSFER)
    assert ledger.available(ctx.sql, "ann") == 600
    committed = steps.commit(ctx, reserved)
    assert ledger.balance(ctx.sql, "bob") == 400
    steps.reverse(ctx, reserved, committed)
    steps.release(ctx, TRANSFER, reserved)
    assert ledger.available(ctx.sql, "ann") == 1_000
    assert audit.problems(ctx.sql) == []


def test_the_rollback_of_reserve_gives_the_money_back(ctx: Any) -> None:
    assert ctx.sql is not None
    steps.release(ctx, TRANSFER, steps.reserve(ctx, TRANSFER))
    assert ledger.available(ctx.sql, "ann") == 1_000
    assert audit.problems(ctx.sql) == []


@pytest.mark.parametrize(
    "change", [{"amount": 1_001}, {"from": "nobody"}, {"to": "nobody"}, {"to": "yen"}]
)
def test_what_the_books_refuse_fails(ctx: HandMadeContext, change: dict[str, Any]) -> None:
    with pytest.raises(Fail):
        steps.reserve(ctx, TRANSFER | change)


def test_low_amounts_need_no_kyc() -> None:
    assert steps.kyc_check(HandMadeContext(params=KYC), TRANSFER)["kyc"] == "not needed"


@pytest.mark.parametrize("answer", ["approved", True])
def test_high_amounts_go_on_when_approved(answer: Any) -> None:
    ctx = HandMadeContext(params=KYC, switches={"kyc": answer})
    assert steps.kyc_check(ctx, HIGH)["kyc"] == "approved"


@pytest.mark.parametrize("answer", ["rejected", False])
def test_high_amounts_fail_when_rejected(answer: Any) -> None:
    with pytest.raises(Fail, match="said no"):
        steps.kyc_check(HandMadeContext(params=KYC, switches={"kyc": answer}), HIGH)


@pytest.mark.parametrize("answer", [None, "perhaps", 1, 0])
def test_high_amounts_wait_and_say_so(answer: Any) -> None:
    ctx = HandMadeContext(params=KYC, switches={"kyc": answer})
    assert steps.kyc_check(ctx, HIGH) == Sleep(switch="kyc", seconds=60)
    assert ctx.reports[0]["stage"] == "kyc"


@pytest.mark.parametrize(
    "params", [{}, {"above": -1}, {"above": "5"}, {"above": 5, "seconds": 0}, {"above": 5, "x": 1}]
)
def test_mistakes_of_kyc_check_are_named(params: dict[str, Any]) -> None:
    assert len(steps.kyc_params_ok(params)) >= 1
