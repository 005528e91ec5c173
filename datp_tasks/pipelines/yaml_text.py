"""YAML that means what it looks like.

Only what JSON knows: `NO` is a country and not false, `2024-01-01` and `007` are texts. Duplicate
keys are refused, because the last one would win silently; aliases too, because a short file with
aliases of aliases can stand for more than fits into memory.
"""

from __future__ import annotations

import re
from typing import Any

import yaml

NUMBER = r"-?(?:0|[1-9][0-9]*)"
#: What a plain scalar stands for; the first that fits. Anything else is a text.
PLAIN_SCALARS = (
    ("null", r"null|Null|NULL|~|", ["n", "N", "~", ""]),
    ("bool", r"true|True|TRUE|false|False|FALSE", list("tTfF")),
    ("int", NUMBER, list("-0123456789")),
    ("float", NUMBER + r"(?:\.[0-9]+)?(?:[eE][-+]?[0-9]+)?", list("-0123456789")),
)
UNICODE_BREAKS = "\x85\u2028\u2029"


class YamlTextError(ValueError):
    """The text is not acceptable YAML; the message says where and why."""


class _Loader(yaml.SafeLoader):
    def compose_node(self, parent: Any, index: Any) -> Any:
        if self.check_event(yaml.AliasEvent):
            mark = self.peek_event().start_mark  # type: ignore[no-untyped-call]
            raise yaml.MarkedYAMLError(
                problem="aliases (*) are not supported; write the value out", problem_mark=mark
            )
        return super().compose_node(parent, index)

    def construct_mapping(self, node: Any, deep: bool = False) -> dict[Any, Any]:
        seen: set[tuple[str, str]] = set()
        for key, _ in node.value:
            if not isinstance(key, yaml.ScalarNode):
                continue
            if (key.tag, key.value) in seen:
                raise yaml.MarkedYAMLError(
                    problem=f"the key {key.value!r} appears twice", problem_mark=key.start_mark
                )
            seen.add((key.tag, key.value))
        return super().construct_mapping(node, deep)


class _Dumper(yaml.SafeDumper):
    """Quotes what either this loader or an ordinary one would not read as a text."""

    def ignore_aliases(self, data: Any) -> bool:
        return True


def _represent_text(dumper: _Dumper, text: str) -> yaml.ScalarNode:
    # Unquoted, these line breaks of Unicode would come back as ordinary ones.
    style = '"' if any(char in text for char in UNICODE_BREAKS) else None
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)


_Dumper.add_representer(str, _represent_text)
_Loader.yaml_implicit_resolvers = {}
for _kind, _pattern, _first_chars in PLAIN_SCALARS:
    for _class in (_Loader, _Dumper):
        _class.add_implicit_resolver(
            f"tag:yaml.org,2002:{_kind}", re.compile(rf"(?:{_pattern})\Z"), _first_chars
        )


def load_documents(text: str) -> list[Any]:
    """Every document in the text that is not empty."""
    try:
        found = list(yaml.load_all(text, Loader=_Loader))
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark
        place = f"line {mark.line + 1}, column {mark.column + 1}: " if mark else ""
        raise YamlTextError(f"{place}{error.problem}") from None
    except (yaml.YAMLError, ValueError) as error:
        raise YamlTextError(f"is not YAML: {error}") from None
    except RecursionError:
        raise YamlTextError("is nested too deeply") from None
    return [document for document in found if document is not None]


#: Where a value stands: names of keys and places in lists.
Place = tuple[str | int, ...]


def load_lines(text: str) -> dict[Place, int]:
    """The line of each key and each item of the first document, which `load_documents` accepts."""
    lines: dict[Place, int] = {}
    loader = _Loader(text)
    try:
        loader.check_node()
        _note_lines(loader.get_node(), (), lines)
    finally:
        loader.dispose()
    return lines


def _note_lines(node: Any, at: Place, lines: dict[Place, int]) -> None:
    if isinstance(node, yaml.MappingNode):
        for key, value in node.value:
            lines[*at, str(key.value)] = key.start_mark.line + 1
            _note_lines(value, (*at, str(key.value)), lines)
    elif isinstance(node, yaml.SequenceNode):
        for index, item in enumerate(node.value):
            lines[*at, index] = item.start_mark.line + 1
            _note_lines(item, (*at, index), lines)


def dump(value: object) -> str:
    """Block style, keys in the order they come."""
    return yaml.dump(value, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=100)
