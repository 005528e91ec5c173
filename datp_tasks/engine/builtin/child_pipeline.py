"""`util/child-pipeline`: run another pipeline, always the same or chosen by a field.

params:  pipeline: kyc
or:      field: customer.country
         map: {PH: kyc-ph, AU: kyc-au}
         default: kyc-other          # without it, a value that is not in the map fails
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from datp_tasks.engine.builtin.params import mistakes_in, schema_of, told
from datp_tasks.engine.registry import step
from datp_tasks.model.outcome import Call, Fail
from datp_tasks.model.paths import MISSING, lookup, path_mistake

if TYPE_CHECKING:
    from datp_tasks.engine.context import StepContext

KNOWN = {"pipeline": "text", "field": "text", "map": "an object", "default": "text"}


@step(
    "util/child-pipeline",
    description="Runs another pipeline; its output is passed on.",
    parameters=schema_of(KNOWN),
    default={"pipeline": "another"},
)
def child_pipeline(ctx: StepContext, data: dict[str, Any]) -> Call:
    if "pipeline" in ctx.params:
        return Call(ctx.params["pipeline"], data)
    field = ctx.params["field"]
    value = lookup(data, field)
    chosen = ctx.params["map"].get(_key(value), ctx.params.get("default"))
    if chosen is None:
        given = "is missing" if value is MISSING else f"is {told(ctx, value)}"
        raise Fail(f"no pipeline to run: {field} {given}, which is not in the map")
    return Call(chosen, data)


@child_pipeline.check
def params_ok(params: Mapping[str, Any]) -> list[str]:
    mistakes = mistakes_in(params, KNOWN)
    if "pipeline" in params:
        mistakes += [
            f"{name} cannot be used together with pipeline"
            for name in ("field", "map", "default")
            if name in params
        ]
    elif "field" not in params or "map" not in params:
        mistakes.append("either pipeline, or field and map, must be given")
    if isinstance(params.get("field"), str):
        mistake = path_mistake(params["field"], "field")
        mistakes += [mistake] if mistake else []
    if isinstance(params.get("map"), Mapping):
        mistakes += [
            f"map.{value} must be the name of a pipeline, was {name!r}"
            for value, name in params["map"].items()
            if not isinstance(name, str) or not name
        ]
    return mistakes + [
        f"{name} must be the name of a pipeline"
        for name in ("pipeline", "default")
        if params.get(name) == ""
    ]


def _key(value: object) -> str | None:
    """How a value is written as a key of the map; objects and lists match nothing."""
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value) if isinstance(value, str | int) else None
