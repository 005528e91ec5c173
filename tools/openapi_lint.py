"""Looks through the OpenAPI document for what makes bad clients: `python -m tools.openapi_lint`.

It needs no server. What it wants: a valid document, an operation id that is a verb and a noun for
each route, answers with a schema, a key and what it must be good for, examples that fit.
"""

from __future__ import annotations

import re
import sys
from collections import Counter
from collections.abc import Iterator
from typing import Any

from jsonschema import Draft202012Validator
from openapi_spec_validator import OpenAPIV31SpecValidator

from datp_tasks.api.application import create_app
from datp_tasks.api.services import Services
from datp_tasks.settings import Settings

OPERATION_ID = re.compile(r"([a-z]+)(?:[A-Z][a-z]*)+")
#: What an operation may do; the methods of a generated client begin with one of these.
# fmt: off
VERBS = frozenset((
    "act", "add", "apply", "approve", "cancel", "change", "check", "clone", "close",
    "commit", "compare", "create", "delete", "disable", "explain", "export", "get", "import",
    "list", "park", "ping", "preview", "redeliver", "reject", "remove", "replay", "resolve",
    "resubmit", "resume", "retry", "revoke", "rotate", "scrape", "set", "start", "submit",
    "test", "unmask", "use", "wake",
))
# fmt: on
#: Every key may read what an input must be, and end itself.
ANY_KEY = ("getInputSchema", "revokeKey")


def document() -> dict[str, Any]:
    def open_services() -> Services:
        raise AssertionError("the document needs no servers")

    app = create_app(open_services, Settings(key_pepper="a pepper that no key is made with"))
    found: dict[str, Any] = app.openapi()
    return found


def operations(found: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    for path, methods in found["paths"].items():
        for method, operation in methods.items():
            yield f"{method.upper()} {path}", operation


def mistakes(found: dict[str, Any]) -> list[str]:
    wrong = [f"document: {error.message:.200}" for error in _invalid(found)]
    names = Counter(operation.get("operationId") for _, operation in operations(found))
    wrong += [f"the operation id {name} is there {n} times" for name, n in names.items() if n > 1]
    for route, operation in operations(found):
        wrong += [f"{route}: {mistake}" for mistake in _examples(operation, found)]
        wrong += [f"{route}: {mistake}" for mistake in _of_operation(operation, found)]
    return wrong + [f"example of {mistake}" for mistake in _bad_examples(found)]


def _invalid(found: dict[str, Any]) -> Iterator[Any]:
    yield from OpenAPIV31SpecValidator(found).iter_errors()


def _of_operation(operation: dict[str, Any], found: dict[str, Any]) -> Iterator[str]:
    name = operation.get("operationId", "")
    match = OPERATION_ID.fullmatch(name)
    if match is None or match[1] not in VERBS:
        yield f"its operation id {name!r} is not a verb and a noun in camelCase"
    if not operation.get("summary") or not operation.get("description"):
        yield "it does not say what it does"
    if "health" not in operation.get("tags", ()) and "security" not in operation:
        yield "it does not say that it needs a key"
    if operation.get("security") == [{"key": []}] and name not in ANY_KEY:
        yield "it does not say what a key must be good for"
    if name.startswith("list"):
        yield from _list_mistakes(operation, found)
    answers = {code: each for code, each in operation["responses"].items() if code < "300"}
    if not answers:
        yield "it has no good answer"
    for code, answer in answers.items():
        schema = answer.get("content", {}).get("application/json", {}).get("schema")
        if schema is not None and not _is_typed(schema, found):
            yield f"its answer {code} has no fields"


def _examples(operation: dict[str, Any], found: dict[str, Any]) -> Iterator[str]:
    """What is sent and what is answered has an example that fits."""
    places = [("its body", operation.get("requestBody", {}))]
    places += [
        (f"its answer {code}", each)
        for code, each in operation["responses"].items()
        if code < "300"
    ]
    for place, described in places:
        content = described.get("content", {}).get("application/json")
        if content is None:
            continue
        if "example" not in content:
            yield f"{place} has no example"
            continue
        schema = {**content["schema"], "components": found["components"]}
        for error in Draft202012Validator(schema).iter_errors(content["example"]):
            yield f"the example of {place}: {error.json_path}: {error.message:.200}"


def _list_mistakes(operation: dict[str, Any], found: dict[str, Any]) -> Iterator[str]:
    """A list has pages, and says how many a page may have."""
    names = {each["name"] for each in operation.get("parameters", ())}
    # A feed has no end: its cursor says after which event it goes on.
    if "limit" not in names or not names & {"cursor", "after"}:
        yield "it is a list without limit and cursor"
    schema = operation["responses"]["200"]["content"]["application/json"]["schema"]
    fields = found["components"]["schemas"][schema["$ref"].rpartition("/")[2]]["properties"]
    missing = {"nextCursor", "hasMore", "limit"} - fields.keys()
    if missing:
        yield f"its pages do not say {', '.join(sorted(missing))}"


def _is_typed(schema: dict[str, Any], found: dict[str, Any]) -> bool:
    if "$ref" in schema:
        return _is_typed(found["components"]["schemas"][schema["$ref"].rpartition("/")[2]], found)
    several = schema.get("anyOf") or schema.get("oneOf")
    if several:
        return all(_is_typed(each, found) for each in several)
    return bool(schema.get("properties")) or schema.get("type") not in (None, "object")


def _bad_examples(found: dict[str, Any]) -> Iterator[str]:
    components = {"components": found["components"]}
    for name, schema in found["components"]["schemas"].items():
        for place, field in (("", schema), *schema.get("properties", {}).items()):
            if not isinstance(field, dict):
                continue
            for example in field.get("examples", ()):
                for error in Draft202012Validator({**field, **components}).iter_errors(example):
                    yield f"{name}.{place}: {error.message:.200}"


def main() -> int:
    found = mistakes(document())
    for mistake in found:
        sys.stderr.write(f"{mistake}\n")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
