"""`util/map-fields`: build the next step's input from the fields of this one's.

params:  fields:
           customer.id: user.number                       # copy
           kind: {literal: transfer}
           lang: {from: user.lang, default: en}
           title: {template: "From {{a.name}} to {{b.name}}"}
         keep: true                                       # keep the other fields too
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from datp_tasks.engine.builtin.params import mistakes_in
from datp_tasks.engine.builtin.paths import (
    MISSING,
    FieldMissing,
    PathBlocked,
    lookup,
    path_mistake,
    put,
    render,
    template_mistakes,
)
from datp_tasks.engine.registry import step
from datp_tasks.model.outcome import Fail

if TYPE_CHECKING:
    from datp_tasks.engine.context import StepContext

SOURCE_FORMS = ({"literal"}, {"from"}, {"from", "default"}, {"template"})


@step("util/map-fields", description="Copies, sets and composes fields.")
def map_fields(ctx: StepContext, data: dict[str, Any]) -> dict[str, Any]:
    output: dict[str, Any] = copy.deepcopy(data) if ctx.params.get("keep") else {}
    problems = []
    for target, source in ctx.params["fields"].items():
        try:
            put(output, target, copy.deepcopy(_value(source, data)))
        except (FieldMissing, PathBlocked) as problem:
            problems.append(f"{target}: {problem}")
    if problems:
        raise Fail("; ".join(problems))
    return output


@map_fields.check
def params_ok(params: Mapping[str, Any]) -> list[str]:
    mistakes = mistakes_in(params, {"fields": "an object", "keep": "true or false"})
    fields = params.get("fields")
    if not fields:
        mistakes.append("fields must be given: an object of target path to source")
    if not isinstance(fields, Mapping):
        return mistakes
    for target, source in fields.items():
        mistake = path_mistake(target, f"fields: the target {target!r}")
        mistakes += [mistake] if mistake else []
        mistakes += _source_mistakes(source, f"fields.{target}")
    return mistakes + [
        f"fields: {outer} and {inner} cannot both be set"
        for outer in fields
        for inner in fields
        if str(inner).startswith(f"{outer}.")
    ]


def _value(source: Any, data: Mapping[str, Any]) -> Any:
    if isinstance(source, str):
        source = {"from": source}
    if "literal" in source:
        return source["literal"]
    if "template" in source:
        return render(source["template"], data)
    value = lookup(data, source["from"], source.get("default", MISSING))
    if value is MISSING:
        raise FieldMissing(source["from"])
    return value


def _source_mistakes(source: object, where: str) -> list[str]:
    if isinstance(source, str):
        source = {"from": source}
    if not isinstance(source, Mapping) or set(source) not in SOURCE_FORMS:
        return [
            f"{where} must be a path, {{literal: …}}, {{from: path, default: …}} "
            f"or {{template: text}}, was {source!r}"
        ]
    if "from" in source:
        mistake = path_mistake(source["from"], where)
        return [mistake] if mistake else []
    if "template" in source and not isinstance(source["template"], str):
        return [f"{where}.template must be text, was {source['template']!r}"]
    return template_mistakes(source.get("template"), f"{where}.template")
