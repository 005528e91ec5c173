"""A transfer with every kind of step, for the sweep and for chaos; also for real workers.

Money moves in two places: in the books of the example (SQL, transactional steps) and at an
outside bank, which knows idempotency keys for `chaos/send`, and for `chaos/wire` only if the data
does not say `blind`.
"""

from __future__ import annotations

import os
from typing import Any

from datp_tasks import Call, Done, Fail, NotDone, Pipeline, Sleep, StepContext, step
from datp_tasks.testing.bank import Bank
from examples.payments import steps as payments_steps

BANK_URL = "CHAOS_BANK_URL"
SENT, WIRED = 5, 1
#: Whatever a test does to the bank's line lasts shorter than this.
PATIENT = {"max_attempts": 10, "first_s": 0.3, "factor": 2, "max_s": 5}

Data = dict[str, Any]

assert payments_steps.reserve is not None


def bank() -> Bank:
    return Bank(os.environ[BANK_URL])


def pipelines() -> list[Pipeline]:
    transfer = Pipeline("chaos-transfer", on_error="rollback").step("payments/validate")
    transfer = transfer.step("payments/reserve").step("chaos/ask").step("chaos/send")
    transfer = transfer.step("chaos/wire").step("chaos/night")
    transfer = transfer.step("payments/commit", dispatch="queue").step("chaos/thanks")
    return [Pipeline("chaos-kyc", group="kyc", startable=False).step("chaos/kyc"), transfer]


@step("chaos/ask")
def ask(ctx: StepContext, data: Data) -> Call:
    return Call("chaos-kyc", {**data, "asked": True})


@step("chaos/kyc", retry=PATIENT)
async def kyc(ctx: StepContext, data: Data) -> Data:
    return {**data, "kyc": True}


@step("chaos/send", retry=PATIENT)
def send(ctx: StepContext, data: Data) -> Data:
    bank().transfer(ctx.idempotency_key, "house", "partner", SENT, reference=ctx.tx_id)
    return {**data, "sent": SENT}


@send.rollback(partial=True)
def take_back(ctx: StepContext, data: Data, output: Data | None) -> None:
    of = ctx.idempotency_key.removesuffix(":undo")
    bank().undo(ctx.idempotency_key, of, reference=ctx.tx_id)


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
