"""`ledger/submit-batch`: hand a batch to a ledger service and wait until it is final.

params:  service: settlement-eur      # name of the service; may hold {{fields}} of the data
         content: settlement          # path to what the batch carries; without it, all the data
         payload: signed              # instead: path to a signed BatchList, in base64
         into: ledger                 # {service, batch, state, receipt} goes into this field
         seconds: 60                  # look again after this time, if it is not woken before
The batch has an id that follows from the transaction and the step, so it is submitted once,
however often the step runs. A batch that the ledger calls invalid fails the transaction. What is
committed in a ledger stays there: this step has no rollback, and belongs at the end.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from datp_tasks.engine.builtin.params import SECONDS, mistakes_in, schema_of, seconds_mistakes
from datp_tasks.engine.registry import step
from datp_tasks.errors import BatchConflict, BatchInvalid, ServiceUnknown
from datp_tasks.ledger.batch_list import (
    NotABatchList,
    batch_ids,
    derived_id,
    unsigned_batch_list,
)
from datp_tasks.model.ledger_batch import BatchState
from datp_tasks.model.outcome import Fail, Sleep
from datp_tasks.model.paths import (
    MISSING,
    FieldMissing,
    lookup,
    path_mistake,
    render,
    template_mistakes,
)
from datp_tasks.model.payload import canonical

if TYPE_CHECKING:
    from datp_tasks.engine.context import StepContext

KNOWN = {
    "service": "text",
    "content": "text",
    "payload": "text",
    "into": "text",
    "seconds": "any",
}
LOOK_AGAIN_S = 60.0


@step(
    "ledger/submit-batch",
    description="Submits a batch to a ledger and passes its receipt on.",
    parameters=schema_of(KNOWN, "service", seconds=SECONDS),
    default={"service": "books", "content": "entry", "into": "ledger"},
    retry={"max_attempts": 20, "first_s": 0.5, "factor": 2, "max_s": 60},
)
def submit_batch(ctx: StepContext, data: dict[str, Any]) -> dict[str, Any] | Sleep:
    params = ctx.params
    batch_id, payload = _batch(ctx, data)
    switch = f"batch-{batch_id[:16]}"
    try:
        service = render(params["service"], data)
        batch = ctx.submit_batch(service, batch_id, payload, switch)
    except (FieldMissing, ServiceUnknown, BatchInvalid, BatchConflict) as problem:
        # The same input gives the same batch, so another attempt cannot help.
        raise Fail(f"the batch cannot be submitted: {problem}") from None
    result = {
        "service": service,
        "batch": batch_id,
        "state": str(batch.state),
        "receipt": batch.receipt,
    }
    into = params.get("into", "ledger")
    if batch.state is BatchState.COMMITTED:
        return {**data, into: result}
    if batch.is_final:
        raise Fail(f"the ledger did not commit the batch: {batch.note}", {into: result})
    ctx.progress({"stage": "ledger", "batch": batch_id, "state": str(batch.state)})
    return Sleep(seconds=params.get("seconds", LOOK_AGAIN_S), switch=switch)


@submit_batch.check
def params_ok(params: Mapping[str, Any]) -> list[str]:
    mistakes = mistakes_in(params, KNOWN)
    # A wait of no time at all would turn the worker in a circle.
    mistakes += seconds_mistakes(params, "seconds", low_s=0.1)
    if not params.get("service"):
        mistakes.append("service must be given: the name of a ledger service")
    mistakes += template_mistakes(params.get("service"), "service")
    for name in ("content", "payload"):
        if name in params and (mistake := path_mistake(params[name], name)):
            mistakes.append(mistake)
    if "content" in params and "payload" in params:
        mistakes.append("content and payload cannot both be given")
    if params.get("into") == "":
        mistakes.append("into must not be empty")
    return mistakes


def _batch(ctx: StepContext, data: dict[str, Any]) -> tuple[str, bytes]:
    """The id and the bytes: the same ones each time the step runs."""
    signed = ctx.params.get("payload")
    if signed is not None:
        return _signed(lookup(data, signed), signed)
    path = ctx.params.get("content")
    content = data if path is None else lookup(data, path)
    if content is MISSING:
        raise Fail(f"the batch cannot be made: the data has no field {path}")
    batch_id = derived_id(ctx.idempotency_key)
    return batch_id, unsigned_batch_list(batch_id, canonical(content).encode())


def _signed(text: Any, path: str) -> tuple[str, bytes]:
    try:
        payload = base64.b64decode(text, validate=True)
        found = batch_ids(payload)
    except (TypeError, ValueError, binascii.Error, NotABatchList):
        found, payload = [], b""
    if len(found) != 1:
        raise Fail(f"the field {path} must hold one signed batch, as a BatchList in base64")
    return found[0], payload
