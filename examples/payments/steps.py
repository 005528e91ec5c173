"""The step types of the example. Money moves only in the transactional ones, exactly once."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from datp_tasks import Abort, Fail, Sleep, step

from . import ledger, settlement

if TYPE_CHECKING:
    from datp_tasks.engine.context import StepContext

CURRENCY = re.compile(r"[A-Z]{3}")
ACCOUNT_CHARS_MAX = 100
APPROVED = ("approved", True)
REJECTED = ("rejected", False)
#: A database that is away for a minute must not end a payment.
PATIENT = {"max_attempts": 10, "first_s": 0.5, "factor": 2, "max_s": 60}
#: What the customer can mend: not enough money, no such account, another currency.
REFUSALS = (ledger.InsufficientFunds, ledger.AccountUnknown, ledger.CurrencyMismatch)


@step("payments/validate", description="Checks that the transfer makes sense.")
def validate(ctx: StepContext, data: dict[str, Any]) -> None:
    mistakes = [
        f"{name} must be the id of an account"
        for name in ("from", "to")
        if not isinstance(data.get(name), str) or not 0 < len(data[name]) <= ACCOUNT_CHARS_MAX
    ]
    if not mistakes and data["from"] == data["to"]:
        mistakes.append("from and to must be different accounts")
    amount = data.get("amount")
    if type(amount) is not int or not 0 < amount <= ledger.AMOUNT_MAX:
        mistakes.append("amount must be a whole number of minor units (cents), above 0")
    currency = data.get("currency")
    if not isinstance(currency, str) or not CURRENCY.fullmatch(currency):
        mistakes.append("currency must be three capital letters")
    if mistakes:
        raise Fail("; ".join(mistakes))


@step(
    "payments/reserve",
    description="Holds the amount on the payer's account; its rollback lets it go.",
    retry=PATIENT,
    transactional=True,
)
def reserve(ctx: StepContext, data: dict[str, Any]) -> dict[str, Any]:
    try:
        ledger.check_accounts(ctx.sql, data["currency"], data["from"], data["to"])
        ledger.reserve(ctx.sql, ctx.tx_id, data["from"], data["amount"])
    except REFUSALS as refusal:
        raise Fail(str(refusal)) from None
    return {**data, "reserved": True}


@reserve.rollback
def release(ctx: StepContext, data: dict[str, Any], output: dict[str, Any]) -> None:
    ledger.release(ctx.sql, ctx.tx_id)


@step("payments/kyc-check", description="Waits for the switch kyc when the amount is high.")
def kyc_check(ctx: StepContext, data: dict[str, Any]) -> dict[str, Any] | Sleep:
    if data["amount"] <= ctx.params["above"]:
        return {**data, "kyc": "not needed"}
    answer = ctx.switch("kyc")
    # `in` alone would take 1 for true and 0 for false.
    if isinstance(answer, str | bool):
        if answer in APPROVED:
            return {**data, "kyc": "approved"}
        if answer in REJECTED:
            raise Fail("the check of the customer (KYC) said no")
    ctx.progress({"stage": "kyc", "waitingFor": "switch kyc: approved or rejected"})
    return Sleep(switch="kyc", seconds=ctx.params.get("seconds"))


@kyc_check.check
def kyc_params_ok(params: Mapping[str, Any]) -> list[str]:
    mistakes = [
        f"{name} is unknown; known are above, seconds"
        for name in params
        if name not in ("above", "seconds")
    ]
    if type(params.get("above")) is not int or params["above"] < 0:
        mistakes.append("above must be a whole number of minor units, 0 or more")
    if type(params.get("seconds", 1)) is not int or params.get("seconds", 1) < 1:
        mistakes.append("seconds must be a whole number, 1 or more")
    return mistakes


@step(
    "payments/commit",
    description="Moves the held amount to the payee; its rollback moves it back.",
    retry=PATIENT,
    transactional=True,
)
def commit(ctx: StepContext, data: dict[str, Any]) -> dict[str, Any]:
    ledger.commit_transfer(ctx.sql, ctx.tx_id, target=data["to"])
    return {**data, "committed": True}


# A transfer can be cancelled, or expire, in the moment between its last step and its end.
@commit.rollback
def reverse(ctx: StepContext, data: dict[str, Any], output: dict[str, Any]) -> None:
    ledger.reverse_transfer(ctx.sql, ctx.tx_id)


@step(
    "payments/collect",
    description="Puts what was transferred since the last settlement into this one.",
    retry=PATIENT,
    transactional=True,
)
def collect(ctx: StepContext, data: dict[str, Any]) -> dict[str, Any]:
    currency = data.get("currency")
    if not isinstance(currency, str) or not CURRENCY.fullmatch(currency):
        raise Fail("currency must be three capital letters")
    positions = settlement.collect(ctx.sql, ctx.tx_id, currency, str(data.get("prefix", "")))
    if not positions:
        raise Abort("there is nothing to settle")
    # Amounts as text: other ledgers must not read them as floats.
    shown = {account: str(amount) for account, amount in positions.items()}
    return {**data, "settlement": {"currency": currency, "positions": shown}}


@collect.rollback
def give_back(ctx: StepContext, data: dict[str, Any], output: dict[str, Any]) -> None:
    settlement.give_back(ctx.sql, ctx.tx_id)


@step(
    "payments/settled",
    description="Notes the batch in which the entries were settled.",
    retry=PATIENT,
    transactional=True,
)
def settled(ctx: StepContext, data: dict[str, Any]) -> dict[str, Any]:
    entries = settlement.mark_settled(ctx.sql, ctx.tx_id, data["ledger"]["batch"])
    return {**data, "entries": entries}
