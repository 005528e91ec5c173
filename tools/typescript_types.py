"""The types of the API for TypeScript: `make clients` writes clients/typescript/datp.d.ts.

They are made from the OpenAPI document, so they cannot say anything else than the server does; a
test compares. Every schema becomes a type, every operation its parameters, body and replies under
its operationId.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
TARGET = ROOT / "clients" / "typescript" / "datp.d.ts"
REFERENCE = "#/components/schemas/"
NAME = re.compile(r"[A-Za-z_$][A-Za-z0-9_$]*")
METHODS = ("get", "put", "post", "delete", "patch")
SIMPLE = {
    "string": "string",
    "integer": "number",
    "number": "number",
    "boolean": "boolean",
    "null": "null",
}
HEAD = """\
// Types of the DATP Tasks API, made from its OpenAPI document by `make clients`. Do not edit.
"""

Json = Mapping[str, Any]


def main() -> None:
    TARGET.parent.mkdir(parents=True, exist_ok=True)
    TARGET.write_text(types_of(document()))


def document() -> dict[str, Any]:
    """As the server gives it at /openapi.json; no server is needed to make it."""
    from datp_tasks.api.application import create_app
    from datp_tasks.settings import Settings

    def closed() -> Any:
        raise RuntimeError("the document is made without services")

    pepper = {"DATP_KEY_PEPPER": "only for the document, never for keys"}
    found: dict[str, Any] = create_app(closed, Settings.from_env(pepper)).openapi()
    return found


def types_of(spec: Json) -> str:
    schemas = spec.get("components", {}).get("schemas", {})
    parts = [HEAD, *(_schema(name, schemas[name]) for name in sorted(schemas)), _operations(spec)]
    return "\n".join(parts)


def _schema(name: str, schema: Json) -> str:
    comment = _comment(schema.get("description"), "")
    return f"{comment}export type {_named_type(name)} = {type_of(schema)};\n"


def _named_type(name: str) -> str:
    """Names of generic models have brackets and dots."""
    return re.sub(r"\W+", "_", name).strip("_")


def type_of(schema: Json, indent: str = "") -> str:
    """One schema as a type; what it does not say may be anything."""
    if "$ref" in schema:
        return _named_type(str(schema["$ref"]).removeprefix(REFERENCE))
    if "const" in schema:
        return json.dumps(schema["const"])
    if "enum" in schema:
        return " | ".join(json.dumps(each) for each in schema["enum"])
    for word, sign in (("anyOf", " | "), ("oneOf", " | "), ("allOf", " & ")):
        if word in schema:
            return sign.join(dict.fromkeys(_closed(type_of(each, indent)) for each in schema[word]))
    kind = schema.get("type")
    if isinstance(kind, list):
        return " | ".join(type_of({**schema, "type": each}, indent) for each in kind)
    if kind == "array":
        return f"{_closed(type_of(schema.get('items', {}), indent))}[]"
    if kind == "object":
        return _object(schema, indent)
    return SIMPLE.get(str(kind), "unknown")


def _object(schema: Json, indent: str) -> str:
    properties = schema.get("properties", {})
    if not properties:
        more = schema.get("additionalProperties", True)
        value = type_of(more, indent) if isinstance(more, Mapping) else "unknown"
        return f"Record<string, {value}>"
    required = set(schema.get("required", ()))
    inner = indent + "  "
    lines = [
        f"{_comment(each.get('description'), inner)}{inner}{_key(name)}"
        f"{'' if name in required else '?'}: {type_of(each, inner)};"
        for name, each in properties.items()
    ]
    return "\n".join(("{", *lines, f"{indent}}}"))


def _operations(spec: Json) -> str:
    lines = ["export interface Operations {"]
    for name, path, method, operation in sorted(_named(spec)):
        lines.append(_comment(operation.get("summary"), "  ") + f"  {_key(name)}: {{")
        lines.append(f"    method: {json.dumps(method.upper())};")
        lines.append(f"    path: {json.dumps(path)};")
        for place in ("path", "query", "header"):
            wanted = [each for each in operation.get("parameters", ()) if each["in"] == place]
            if wanted:
                lines.append(f"    {place}Parameters: {_parameters(wanted)};")
        body = _json_schema(operation.get("requestBody", {}))
        if body is not None:
            lines.append(f"    body: {type_of(body, '    ')};")
        lines.append(f"    replies: {_replies(operation['responses'])};")
        lines.append("  };")
    return "\n".join((*lines, "}\n"))


def _named(spec: Json) -> Iterator[tuple[str, str, str, Any]]:
    for path, operations in spec["paths"].items():
        for method in METHODS:
            if method in operations:
                operation = operations[method]
                yield operation["operationId"], path, method, operation


def _parameters(wanted: list[Any]) -> str:
    lines = [
        f"      {_key(each['name'])}{'' if each.get('required') else '?'}: "
        f"{type_of(each.get('schema', {}), '      ')};"
        for each in wanted
    ]
    return "\n".join(("{", *lines, "    }"))


def _replies(responses: Json) -> str:
    lines = []
    for code, response in responses.items():
        schema = _json_schema(response)
        shown = "undefined" if schema is None else type_of(schema, "      ")
        lines.append(f"      {code}: {shown};")
    return "\n".join(("{", *lines, "    }"))


def _json_schema(holder: Json) -> Json | None:
    """The schema of its JSON, whichever of our media types it has."""
    for kind, content in holder.get("content", {}).items():
        if "json" in kind:
            found: Json = content.get("schema", {})
            return found
    return None


def _closed(shown: str) -> str:
    return f"({shown})" if " | " in shown or " & " in shown else shown


def _key(name: str) -> str:
    return name if NAME.fullmatch(name) else json.dumps(name)


def _comment(text: str | None, indent: str) -> str:
    if not text:
        return ""
    words = " ".join(text.split()).replace("*/", "* /")
    return f"{indent}/** {words} */\n"


if __name__ == "__main__":
    main()
