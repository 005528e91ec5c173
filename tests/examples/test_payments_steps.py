"""The step types and pipelines of the payments example."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import pytest
from sqlalchemy import Connection, Engine

from datp_tasks import Fail, Sleep
from datp_tasks.engine.registry import discover, registry
from datp_tasks.pipelines.files import load_definitions
from datp_tasks.testing import Kit
from datp_tasks.testing.case_runner import run_case
from examples.payments import PIPELINES_FOLDER, STEPS_MODULE, audit, ledger, steps, tables
from tests.examples.hand_made import HandMadeBatch, Said

TRANSFER = {"from": "ann", "to": "bob", "amount": 400, "currency": "EUR"}
ONE_CENT = TRANSFER | {"amount": 1}
HIGH = TRANSFER | {"amount": 100_001}
KYC = {"above": 100_000, "seconds": 60}


@dataclass(kw_only=True)
class HandMadeContext:
    tx_id: str = "tx"
    owner: str = "local"
    params: Mapping[str, Any] = field(default_factory=dict)
    switches: Mapping[str, Any] = field(default_factory=dict)
    reports: list[Any] = field(default_factory=list)

    def progress(self, report: Any) -> None:
        self.reports.append(report)

    def switch(self, name: str) -> Any:
        return self.switches.get(name)


@pytest.fixture
def sql(payments_engine: Engine) -> Iterator[Connection]:
    tables.create_tables(payments_engine)
    with payments_engine.connect() as connection:
        ledger.open_account(connection, "house", "EUR", is_house=True)
        ledger.open_account(connection, "ann", "EUR")
        ledger.open_account(connection, "bob", "EUR")
        ledger.open_account(connection, "yen", "JPY")
        ledger.deposit(connection, "d", house="house", account="ann", amount=1_000)
        yield connection
        connection.rollback()


@pytest.mark.parametrize("account", ["bob", "annabel", "", "ann2/savings"])
def test_an_owner_cannot_pay_from_the_account_of_another(account: str) -> None:
    with pytest.raises(Fail, match=r"from must be the id|ann does not own"):
        validated(TRANSFER | {"from": account, "to": "carl"}, owner="ann")


@pytest.mark.parametrize(
    ("owner", "account"), [("ann", "ann"), ("ann", "ann/savings"), ("local", "x")]
)
def test_an_owner_pays_from_its_own_account_and_the_bank_from_all(owner: str, account: str) -> None:
    validated(TRANSFER | {"from": account}, owner=owner)


def validated(data: dict[str, Any], owner: str) -> None:
    context: Any = HandMadeContext(owner=owner)
    assert steps.validate(context, data) is None


def test_the_payer_decides_neither_about_its_check_nor_starts_a_settlement() -> None:
    found = {each.name: each.access for each in load_definitions([PIPELINES_FOLDER])}
    assert found["transfer"].of_switch("kyc") == "operator"
    assert (found["settlement"].submit, found["transfer"].submit) == ("granted", "client")


def test_the_pipelines_have_no_mistakes() -> None:
    discover([STEPS_MODULE])
    definitions = load_definitions([PIPELINES_FOLDER])
    assert [
        (each.name, each.node_group, each.startable, each.on_error) for each in definitions
    ] == [
        ("bulk-transfer", "master", True, "keep"),
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


def said(connection: Connection, function: Callable[[Any], Any], **data: Any) -> dict[str, Said]:
    """What a vector step says of transactions with these ids and data."""
    batch = HandMadeBatch(connection, data)
    function(batch)
    return batch.said


def test_reserve_commit_and_their_rollbacks(sql: Connection) -> None:
    reserved = {**TRANSFER, "reserved": True}
    assert said(sql, steps.reserve, tx=TRANSFER) == {"tx": ("done", reserved)}
    assert ledger.available(sql, "ann") == 600
    committed = {**reserved, "committed": True}
    assert said(sql, steps.commit, tx=reserved) == {"tx": ("done", committed)}
    assert ledger.balance(sql, "bob") == 400
    assert said(sql, steps.reverse, tx=reserved) == {"tx": ("done", None)}
    assert said(sql, steps.release, tx=TRANSFER) == {"tx": ("done", None)}
    assert ledger.available(sql, "ann") == 1_000
    assert audit.problems(sql) == []


def test_the_rollback_of_reserve_gives_the_money_back(sql: Connection) -> None:
    said(sql, steps.reserve, one=TRANSFER, two=TRANSFER)
    assert ledger.available(sql, "ann") == 200
    assert said(sql, steps.release, one=TRANSFER, two=TRANSFER, never=TRANSFER) == dict.fromkeys(
        ("one", "two", "never"), ("done", None)
    )
    assert ledger.available(sql, "ann") == 1_000
    assert audit.problems(sql) == []


@pytest.mark.parametrize(
    ("change", "note"),
    [
        ({"amount": 601}, "the account ann does not have 601 available"),
        ({"from": "nobody"}, "there is no account nobody"),
        ({"to": "nobody"}, "there is no account nobody"),
        ({"to": "yen"}, "the account yen is not in EUR"),
    ],
)
def test_what_the_books_refuse_fails_alone(
    sql: Connection, change: dict[str, Any], note: str
) -> None:
    answers = said(sql, steps.reserve, good=TRANSFER, bad=TRANSFER | change, small=ONE_CENT)
    assert answers["bad"] == ("fail", note)
    assert [answers[name][0] for name in ("good", "small")] == ["done", "done"]
    assert ledger.available(sql, "ann") == 599


def test_what_must_not_be_is_tried_again_and_not_passed_off_as_a_refusal(sql: Connection) -> None:
    said(sql, steps.reserve, moved=TRANSFER, held=TRANSFER)
    said(sql, steps.commit, moved=TRANSFER)
    ledger.reserve(sql, "spent", "bob", 1)
    assert said(sql, steps.reserve, moved=TRANSFER, held=TRANSFER)["moved"] == (
        "retry",
        "LedgerError: moved has a reservation already, which is committed",
    )
    again = said(sql, steps.commit, moved=TRANSFER, held=TRANSFER)
    assert again["moved"] == ("retry", "LedgerError: nothing is held for moved")
    assert again["held"][0] == "done"
    assert said(sql, steps.release, moved=TRANSFER)["moved"][0] == "retry"
    ledger.reserve(sql, "rest", "bob", 799)
    assert said(sql, steps.reverse, moved=TRANSFER) == {
        "moved": ("retry", "InsufficientFunds: the account bob has spent what moved brought")
    }


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


# The cases that the pipelines carry, as `datp pipelines test` runs them.

PIPELINES = load_definitions([PIPELINES_FOLDER])


@pytest.mark.parametrize(
    ("name", "case"), [(each.name, case.name) for each in PIPELINES for case in each.cases]
)
def test_a_case_of_the_example_passes(datp: Kit, name: str, case: str) -> None:
    discover((STEPS_MODULE,))
    found = {each.name: each for each in PIPELINES}
    outcome = run_case(datp, found.pop(name), list(found.values()), case)
    assert outcome.passed, outcome.mistakes


def test_the_transfer_has_cases_for_each_way_that_it_can_end() -> None:
    [transfer] = [each for each in PIPELINES if each.name == "transfer"]
    assert sorted(each.status for each in transfer.cases) == [
        *("failed", "failed", "success", "success"),
    ]
