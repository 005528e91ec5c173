"""`util/fixed-reply`: always the same answer. Good for stand-ins and for closed doors.

params:  output: {rate: "1.25"}
         fail: true               # or abort: true; then the output is the transaction's
         note: not offered here
         code: not-offered        # a text of the pipeline's messages, by language
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from datp_tasks.engine.builtin.params import mistakes_in, schema_of
from datp_tasks.engine.registry import step
from datp_tasks.model.outcome import Abort, Fail

if TYPE_CHECKING:
    from datp_tasks.engine.context import StepContext

KNOWN = {
    "output": "an object",
    "fail": "true or false",
    "abort": "true or false",
    "note": "text",
    "code": "text",
}


@step(
    "util/fixed-reply",
    description="Always gives the same answer.",
    parameters=schema_of(KNOWN),
    default={"output": {}},
)
def fixed_reply(ctx: StepContext, data: dict[str, Any]) -> dict[str, Any] | None:
    # A copy: the definition is shared by all transactions.
    output = copy.deepcopy(ctx.params.get("output"))
    note, code = ctx.params.get("note", ""), ctx.params.get("code", "")
    if ctx.params.get("fail"):
        raise Fail(note, output, code=code, params=data)
    if ctx.params.get("abort"):
        raise Abort(note, output, code=code, params=data)
    return output


@fixed_reply.check
def params_ok(params: Mapping[str, Any]) -> list[str]:
    mistakes = mistakes_in(params, KNOWN)
    ends = bool(params.get("fail")) + bool(params.get("abort"))
    if ends == 2:
        mistakes.append("fail and abort cannot both be true")
    for name in ("note", "code"):
        if ends == 0 and name in params:
            mistakes.append(f"{name} is only used together with fail or abort")
    if ends == 0 and "output" not in params:
        mistakes.append("output, fail or abort must be given")
    return mistakes
