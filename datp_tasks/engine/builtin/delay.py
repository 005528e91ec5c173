"""`util/delay`: sleep once, then pass the input on.

params:  seconds: 3600
or:      minSeconds: 60, maxSeconds: 120      # a random time between the two
         allowOverride: true                  # the data's delaySeconds wins, if there is one
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from datp_tasks.engine.builtin.params import (
    SECONDS,
    SLEEP_S_MAX,
    is_number,
    mistakes_in,
    schema_of,
    seconds_mistakes,
    told,
)
from datp_tasks.engine.registry import step
from datp_tasks.model.outcome import Fail, Sleep

if TYPE_CHECKING:
    from datp_tasks.engine.context import StepContext

KNOWN = {
    "seconds": "any",
    "minSeconds": "any",
    "maxSeconds": "any",
    "allowOverride": "true or false",
}


@step(
    "util/delay",
    description="Sleeps for some time, then passes its input on.",
    parameters=schema_of(KNOWN, seconds=SECONDS, minSeconds=SECONDS, maxSeconds=SECONDS),
    default={"seconds": 60},
)
def delay(ctx: StepContext, data: dict[str, Any]) -> Sleep | None:
    # A sleep runs the step again, so that it slept once is the sign that it is done.
    if ctx.sleeps > 0:
        return None
    seconds = _seconds(ctx, data)
    return Sleep(seconds=seconds) if seconds > 0 else None


@delay.check
def params_ok(params: Mapping[str, Any]) -> list[str]:
    mistakes = mistakes_in(params, KNOWN)
    mistakes += seconds_mistakes(params, "seconds", "minSeconds", "maxSeconds")
    has_range = "minSeconds" in params or "maxSeconds" in params
    if has_range == ("seconds" in params):
        mistakes.append("either seconds, or minSeconds and maxSeconds, must be given")
    elif has_range and ("minSeconds" not in params or "maxSeconds" not in params):
        mistakes.append("minSeconds and maxSeconds must be given together")
    elif has_range and not mistakes and params["minSeconds"] > params["maxSeconds"]:
        mistakes.append("minSeconds must not be above maxSeconds")
    return mistakes


def _seconds(ctx: StepContext, data: Mapping[str, Any]) -> float:
    params = ctx.params
    asked = data.get("delaySeconds") if params.get("allowOverride") else None
    if asked is not None:
        if not is_number(asked) or not 0 <= asked <= SLEEP_S_MAX:
            raise Fail(f"delaySeconds must be from 0 to {SLEEP_S_MAX}, was {told(ctx, asked)}")
        return float(asked)
    if "seconds" in params:
        return float(params["seconds"])
    return random.uniform(params["minSeconds"], params["maxSeconds"])
