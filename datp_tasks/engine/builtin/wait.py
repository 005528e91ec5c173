"""`util/wait`: go on when a switch is set.

params:  switch: approved
         seconds: 7200            # how long one wait lasts before the switch is read again
         expect: yes-please       # go on at this value only (or one of a list); without it, at
                                  # any value but false, 0 and ""
         failOn: no-thanks        # fail at this value (or one of a list)
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from datp_tasks.engine.builtin.params import (
    SECONDS,
    as_list,
    is_number,
    mistakes_in,
    same,
    schema_of,
    seconds_mistakes,
    shown,
)
from datp_tasks.engine.registry import step
from datp_tasks.model.outcome import Fail, Sleep

if TYPE_CHECKING:
    from datp_tasks.engine.context import StepContext

KNOWN = {"switch": "text", "seconds": "any", "expect": "any", "failOn": "any"}


@step(
    "util/wait",
    description="Waits until a switch is set, then passes its input on.",
    parameters=schema_of(KNOWN, "switch", seconds=SECONDS),
    default={"switch": "approved", "seconds": 7_200},
)
def wait(ctx: StepContext, data: dict[str, Any]) -> Sleep | None:
    name = ctx.params["switch"]
    value = ctx.switch(name)
    if value is not None:
        if _among(value, ctx.params, "failOn"):
            raise Fail(f"the switch {name} is {shown(value)}")
        if _among(value, ctx.params, "expect") or ("expect" not in ctx.params and value):
            return None
    return Sleep(seconds=ctx.params.get("seconds"), switch=name)


@wait.check
def params_ok(params: Mapping[str, Any]) -> list[str]:
    mistakes = mistakes_in(params, KNOWN)
    # A wait of no time at all would turn the worker in a circle.
    mistakes += seconds_mistakes(params, "seconds", low_s=0.1)
    if not params.get("switch"):
        mistakes.append("switch must be given: the name of the switch to wait for")
    for name in ("expect", "failOn"):
        mistakes += [
            f"{name} must hold texts, numbers or true/false, was {value!r}"
            for value in as_list(params.get(name, []))
            if not isinstance(value, str | bool) and not is_number(value)
        ]
    mistakes += [
        f"{value!r} is in both expect and failOn"
        for value in as_list(params.get("expect", []))
        if _among(value, params, "failOn")
    ]
    return mistakes


def _among(value: object, params: Mapping[str, Any], name: str) -> bool:
    return any(same(value, each) for each in as_list(params.get(name, [])))
