"""Reading Lua, as far as the scripts use it: tokens, calls, names that nobody declared."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

KEYWORDS = frozenset(
    (
        *("and", "break", "do", "else", "elseif", "end", "false", "for", "function", "if", "in"),
        *("local", "nil", "not", "or", "repeat", "return", "then", "true", "until", "while"),
    )
)
GLOBALS = frozenset(
    (
        *("KEYS", "ARGV", "redis", "tonumber", "tostring", "unpack", "ipairs", "pairs"),
        *("math", "string", "table", "type", "pcall"),
    )
)

TOKEN = re.compile(
    r"(?P<skip>\s+|--\[\[.*?\]\]|--[^\n]*)|(?P<string>'[^'\n]*'|\"[^\"\n]*\")"
    r"|(?P<number>\d+)|(?P<name>\w+)|(?P<sign>\.\.\.|\.\.|[=~<>]=|.)",
    re.DOTALL,
)


@dataclass(frozen=True)
class Token:
    kind: str
    text: str


def tokens_of(text: str) -> list[Token]:
    found = [Token(str(match.lastgroup), match.group()) for match in TOKEN.finditer(text)]
    return [token for token in found if token.kind != "skip"]


def calls_of(tokens: Sequence[Token], name: str) -> list[list[list[Token]]]:
    """The arguments of each call of a function, each a list of tokens."""
    parts = re.split(r"(\.)", name)
    size = len(parts)
    return [
        split_arguments(until_closed(tokens, n + size))
        for n in range(len(tokens) - size)
        if [token.text for token in tokens[n : n + size]] == parts
        and tokens[n + size].text == "("
        and (n == 0 or tokens[n - 1].text not in ("function", "."))
    ]


def until_closed(tokens: Sequence[Token], opening: int) -> list[Token]:
    """What is between a bracket and the one that closes it."""
    depth = 0
    for end in range(opening, len(tokens)):
        depth += (tokens[end].text in "([{") - (tokens[end].text in ")]}")
        if depth == 0:
            return list(tokens[opening + 1 : end])
    return list(tokens[opening + 1 :])


def split_arguments(tokens: Sequence[Token]) -> list[list[Token]]:
    arguments: list[list[Token]] = [[]]
    depth = 0
    for token in tokens:
        depth += (token.text in "([{") - (token.text in ")]}")
        if token.text == "," and depth == 0:
            arguments.append([])
        else:
            arguments[-1].append(token)
    return arguments


def undeclared(tokens: Sequence[Token], known: set[str]) -> Iterator[str]:
    """Names that are neither local nor given: Redis stops there, but only once it gets there."""
    declared = known | KEYWORDS | GLOBALS
    texts = ["", *(token.text for token in tokens), ""]
    for n, token in enumerate(tokens, start=1):
        if token.text in ("local", "for"):
            end = next(m for m in range(n, len(texts)) if texts[m] in ("=", "in", "(", "\n", ""))
            declared.update(texts[n + 1 : end])
        if token.text == "function":
            declared.update(inner.text for inner in until_closed(tokens, texts.index("(", n) - 1))
        is_field = texts[n - 1] in (".", "{", ",") and (texts[n - 1] == "." or texts[n + 1] == "=")
        if token.kind == "name" and token.text not in declared and not is_field:
            yield f"{token.text} is not declared"
