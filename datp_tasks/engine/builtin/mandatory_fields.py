"""`util/mandatory-fields`: fail unless the data has the fields it must have.

params:  fields:
           amount: {type: amount}
           payee.country: {type: string, values: [PH, AU]}
           remark: {type: string, optional: true}     # null counts as missing
         unknownFields: ignore                        # or warning (in the log), or error
         errorsAsOutput: true                         # the list is also the output
The note of the failure names every wrong field, not only the first.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from datp_tasks.engine.builtin.field_types import TYPES
from datp_tasks.engine.builtin.params import mistakes_in, same, schema_of, shown, told
from datp_tasks.engine.registry import step
from datp_tasks.model.outcome import Fail
from datp_tasks.model.paths import lookup, path_mistake

if TYPE_CHECKING:
    from datp_tasks.engine.context import StepContext

KNOWN = {"fields": "an object", "unknownFields": "text", "errorsAsOutput": "true or false"}
RULE_KNOWN = {"type": "text", "values": "a list", "optional": "true or false"}
UNKNOWN_FIELDS = ("ignore", "warning", "error")
ERRORS_MAX = 50


@step(
    "util/mandatory-fields",
    description="Fails unless the data has the fields it must have.",
    parameters=schema_of(KNOWN, "fields", unknownFields={"enum": UNKNOWN_FIELDS}),
    default={"fields": {"amount": {"type": "amount"}}},
)
def mandatory_fields(ctx: StepContext, data: dict[str, Any]) -> None:
    fields = ctx.params["fields"]
    errors = [
        {"field": path, "error": error}
        for path, rule in fields.items()
        if (error := _error(ctx, lookup(data, path, None), rule)) is not None
    ]
    unknown_fields = ctx.params.get("unknownFields", "ignore")
    unknown = [] if unknown_fields == "ignore" else list(_unknown(data, set(fields)))
    if unknown_fields == "error":
        errors += [{"field": path, "error": "is not a known field"} for path in unknown]
    elif unknown:
        ctx.log.warning("unknown fields: %s", ", ".join(unknown[:ERRORS_MAX]))
    if errors:
        raise Fail(_note(errors), _output(errors) if ctx.params.get("errorsAsOutput") else None)


@mandatory_fields.check
def params_ok(params: Mapping[str, Any]) -> list[str]:
    mistakes = mistakes_in(params, KNOWN)
    if params.get("unknownFields", "ignore") not in UNKNOWN_FIELDS:
        mistakes.append(f"unknownFields must be one of {', '.join(UNKNOWN_FIELDS)}")
    fields = params.get("fields")
    if not fields:
        mistakes.append("fields must be given: an object of path to rule")
    if isinstance(fields, Mapping):
        for path, rule in fields.items():
            mistakes += _rule_mistakes(path, rule)
    return mistakes


def _error(ctx: StepContext, value: Any, rule: Mapping[str, Any]) -> str | None:
    if value is None:
        return None if rule.get("optional") else "is missing"
    if "type" in rule:
        holds, words = TYPES[rule["type"]]
        if not holds(value):
            return f"must be {words}, was {told(ctx, value)}"
    values = rule.get("values")
    if values is not None and not any(same(value, each) for each in values):
        return f"must be one of {', '.join(map(repr, values))}, was {told(ctx, value)}"
    return None


def _unknown(data: Mapping[str, Any], declared: set[str], prefix: str = "") -> Iterator[str]:
    """Fields that are neither declared, nor above nor below a declared one."""
    for name, value in data.items():
        path = f"{prefix}{name}"
        leads_on = any(each.startswith(f"{path}.") for each in declared)
        if leads_on and isinstance(value, Mapping):
            yield from _unknown(value, declared, f"{path}.")
        elif not leads_on and path not in declared:
            yield shown(path, 100).strip("'\"")


def _note(errors: list[dict[str, str]]) -> str:
    listed = "; ".join(f"{each['field']} {each['error']}" for each in errors[:ERRORS_MAX])
    more = len(errors) - ERRORS_MAX
    return f"{listed}; and {more} more" if more > 0 else listed


def _output(errors: list[dict[str, str]]) -> dict[str, Any]:
    return {"errors": errors[:ERRORS_MAX], "errorCount": len(errors)}


def _rule_mistakes(path: object, rule: object) -> list[str]:
    where = f"fields.{path}"
    mistake = path_mistake(path, where)
    mistakes = [mistake] if mistake else []
    if not isinstance(rule, Mapping):
        return [*mistakes, f"{where} must be an object such as {{type: string}}, was {rule!r}"]
    mistakes += [f"{where}: {each}" for each in mistakes_in(rule, RULE_KNOWN)]
    if "type" in rule and rule["type"] not in TYPES:
        mistakes.append(f"{where}.type must be one of {', '.join(TYPES)}, was {rule['type']!r}")
    if rule.get("values") == []:
        mistakes.append(f"{where}.values must not be empty")
    return mistakes
