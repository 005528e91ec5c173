"""The step types of the example. Money moves only in the transactional ones, exactly once.

Those that move money are vector steps: they get all transfers of a vector at once, and need as
many statements for a hundred as for one.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from datp_tasks import Abort, Fail, Sleep, step

from . import ledger, ledger_batches, settlement
from .ledger import LedgerError
from .ledger_batches import Wanted

if TYPE_CHECKING:
    from datp_tasks import Batch, Item
    from datp_tasks.engine.context import StepContext

CURRENCY = re.compile(r"[A-Z]{3}")
ACCOUNT_CHARS_MAX = 100
#: The owner of what this installation submits itself, on the command line and in the demo. It pays
#: from every account, so make no API key for it that leaves the house.
BANK = "local"
APPROVED = ("approved", True)
REJECTED = ("rejected", False)
#: A database that is unavailable for a minute must not end a payment.
PATIENT = {"max_attempts": 10, "first_s": 0.5, "factor": 2, "max_s": 60}
#: What the customer can mend: not enough money, no such account, another currency.
REFUSALS = (ledger.InsufficientFunds, ledger.AccountUnknown, ledger.CurrencyMismatch)


def _owns(owner: str, account: str) -> bool:
    """An owner has the account of its own name, and those below it, as in `ann/savings`."""
    return owner == BANK or account == owner or account.startswith(f"{owner}/")


@step("payments/validate", description="Checks that the transfer makes sense.")
def validate(ctx: StepContext, data: dict[str, Any]) -> None:
    mistakes = [
        f"{name} must be the id of an account"
        for name in ("from", "to")
        if not isinstance(data.get(name), str) or not 0 < len(data[name]) <= ACCOUNT_CHARS_MAX
    ]
    if not mistakes and data["from"] == data["to"]:
        mistakes.append("from and to must be different accounts")
    if not mistakes and not _owns(ctx.owner, data["from"]):
        # Before the amount: whether there is such an account is not told either.
        mistakes.append(f"{ctx.owner} does not own the account that is to pay")
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
    vector=True,
)
def reserve(batch: Batch) -> None:
    errors = ledger_batches.reserve_many(batch.sql, [_wanted(item) for item in batch])
    for item in batch:
        error = errors[item.tx_id]
        if isinstance(error, REFUSALS):
            item.fail(str(error))
        else:
            _answer(item, error, {**item.data, "reserved": True})


@reserve.rollback
def release(batch: Batch) -> None:
    errors = ledger_batches.release_many(batch.sql, [item.tx_id for item in batch])
    for item in batch:
        _answer(item, errors[item.tx_id])


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
    vector=True,
)
def commit(batch: Batch) -> None:
    targets = {item.tx_id: item.data["to"] for item in batch}
    errors = ledger_batches.commit_many(batch.sql, targets)
    for item in batch:
        _answer(item, errors[item.tx_id], {**item.data, "committed": True})


# Not by an expiry or a cancel: the commit is the point of no return. A person may decide so.
@commit.rollback
def reverse(batch: Batch) -> None:
    errors = ledger_batches.reverse_many(batch.sql, [item.tx_id for item in batch])
    for item in batch:
        _answer(item, errors[item.tx_id])


def _wanted(item: Item) -> Wanted:
    data = item.data
    return Wanted(item.tx_id, data["from"], data["to"], data["currency"], data["amount"])


def _answer(item: Item, error: LedgerError | None, output: Mapping[str, Any] | None = None) -> None:
    """What the books do not allow is tried again, and then a person must look at it."""
    if error is None:
        item.done(output)
    else:
        item.retry(f"{type(error).__name__}: {error}")


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
