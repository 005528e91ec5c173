"""A transfer with every kind of step, for the sweep and for chaos; also for real workers.

Money moves in two places: in the books of the example (SQL, transactional steps) and at an
outside bank, which knows idempotency keys for `chaos/send`, and for `chaos/wire` only if the data
does not say `blind`. `chaos/book` and `chaos/send` are vector steps, with and without SQL.
"""

from __future__ import annotations

import os
from typing import Any

from sqlalchemy import text

from datp_tasks import Batch, Call, Done, Fail, NotDone, Pipeline, Sleep, StepContext, step
from examples.payments import steps as payments_steps
from tests.support.bank import Bank

BANK_URL = "CHAOS_BANK_URL"
#: Table of `chaos/book`.
BOOKING = "chaos_booking"
SENT, WIRED = 5, 1
#: Whatever a test does to the bank's line lasts shorter than this.
PATIENT = {"max_attempts": 10, "first_s": 0.3, "factor": 2, "max_s": 5}

Data = dict[str, Any]

assert payments_steps.reserve is not None


def bank() -> Bank:
    return Bank(os.environ[BANK_URL])


def pipelines() -> list[Pipeline]:
    transfer = Pipeline("chaos-transfer", on_error="rollback").step("payments/validate")
    transfer = transfer.step("payments/reserve").step("chaos/book").step("chaos/ask")
    transfer = transfer.step("chaos/send")
    transfer = transfer.step("chaos/wire").step("chaos/night")
    transfer = transfer.step("payments/commit", dispatch="queue").step("chaos/thanks")
    return [Pipeline("chaos-kyc", group="kyc", startable=False).step("chaos/kyc"), transfer]


@step("chaos/ask")
def ask(ctx: StepContext, data: Data) -> Call:
    return Call("chaos-kyc", {**data, "asked": True})


@step("chaos/kyc", retry=PATIENT)
async def kyc(ctx: StepContext, data: Data) -> Data:
    return {**data, "kyc": True}


@step("chaos/book", transactional=True, vector=True)
def book(batch: Batch) -> None:
    _book(batch, 1)
    for item in batch:
        item.done({**item.data, "booked": True})


@book.rollback
def unbook(batch: Batch) -> None:
    _book(batch, -1)
    for item in batch:
        item.done()


def _book(batch: Batch, amount: int) -> None:
    """No key keeps a booking from being made twice: only the engine does."""
    rows = [{"tx_id": item.tx_id, "amount": amount} for item in batch]
    batch.sql.execute(text(f"INSERT INTO {BOOKING} (tx_id, amount) VALUES (:tx_id, :amount)"), rows)


@step("chaos/send", vector=True, retry=PATIENT)
def send(batch: Batch) -> None:
    for item in batch:
        bank().transfer(item.idempotency_key, "house", "partner", SENT, reference=item.tx_id)
        item.done({**item.data, "sent": SENT})


@send.rollback(partial=True)
def take_back(batch: Batch) -> None:
    for item in batch:
        of = item.idempotency_key.removesuffix(":undo")
        bank().undo(item.idempotency_key, of, reference=item.tx_id)
        item.done()


@step("chaos/wire", on_crash="probe", retry=PATIENT)
def wire(ctx: StepContext, data: Data) -> Data:
    key = ctx.idempotency_key
    # A try that broke may have taken effect; the engine asks by itself only after a crash.
    if ctx.attempt == 1 or bank().find(key) is None:
        blind = bool(data.get("blind"))
        bank().transfer(key, "house", "fees", WIRED, reference=ctx.tx_id, blind=blind)
    return {**data, "wired": WIRED}


@wire.probe
def look(ctx: StepContext, data: Data) -> Done | NotDone:
    found = bank().find(ctx.idempotency_key)
    return NotDone() if found is None else Done({**data, "wired": WIRED})


@wire.rollback(partial=True)
def unwire(ctx: StepContext, data: Data, output: Data | None) -> None:
    of = ctx.idempotency_key.removesuffix(":undo")
    bank().undo(ctx.idempotency_key, of, reference=ctx.tx_id)


@step("chaos/night")
def night(ctx: StepContext, data: Data) -> Sleep | None:
    return Sleep(seconds=data["night_s"]) if ctx.sleeps == 0 and data.get("night_s") else None


@step("chaos/thanks")
def thanks(ctx: StepContext, data: Data) -> Data:
    ctx.progress({"stage": "thanks"})
    if data.get("fails"):
        raise Fail("nobody wants to know")
    return {**data, "thanked": True}
