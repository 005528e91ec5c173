"""`util/map-fields`: build the next step's input from the fields of this one's.

params:  fields:
           customer.id: user.number                       # copy
           kind: {literal: transfer}
           lang: {from: user.lang, default: en}
           title: {template: "From {{a.name}} to {{b.name}}"}
           cents: {from: amount, amount: minor, scale: 2}  # model/conversions.py has them all
         keep: true                                       # keep the other fields too
or:      mapping: bank-codes                              # shared, by its name
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from datp_tasks.engine.builtin.params import mistakes_in, schema_of
from datp_tasks.engine.registry import step
from datp_tasks.errors import StepError
from datp_tasks.model.mapping import MAPPING_NAME, STEP_TYPE, apply_mapping, content_mistakes
from datp_tasks.model.outcome import Fail

if TYPE_CHECKING:
    from datp_tasks.engine.context import StepContext

KNOWN = {
    "fields": "an object",
    "codes": "an object",
    "keep": "true or false",
    "mapping": "text",
    "mappingVersion": "text",
}


@step(
    STEP_TYPE,
    description="Copies, sets, converts and composes fields.",
    parameters=schema_of(KNOWN),
    default={"fields": {"kind": {"literal": "transfer"}}, "keep": True},
)
def map_fields(ctx: StepContext, data: dict[str, Any]) -> dict[str, Any]:
    if "fields" not in ctx.params:
        raise StepError(f"the mapping {ctx.params['mapping']} was not put into this pipeline")
    output, problems = apply_mapping(ctx.params, data, quotes=not ctx.is_sealed)
    if problems:
        raise Fail("; ".join(problems))
    return output


@map_fields.check
def params_ok(params: Mapping[str, Any]) -> list[str]:
    mistakes = mistakes_in(params, KNOWN)
    if mistakes:
        return mistakes
    name = params.get("mapping")
    if name is not None and not MAPPING_NAME.fullmatch(name):
        return [f"mapping must be the name of a mapping, was {name!r:.100}"]
    if name is not None and "mappingVersion" not in params:
        strays = [key for key in ("fields", "codes", "keep") if key in params]
        return [f"{strays[0]} is in the mapping, or here, not both"] if strays else []
    return content_mistakes(params)
