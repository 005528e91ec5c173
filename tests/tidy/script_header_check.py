"""Holds a Lua script to its header: keys and arguments, replies, and what scripts may not do.

This is no Lua parser. It reads the plain style that the scripts are written in, and says so when
a script leaves that style.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from datp_tasks.model.status import Status
from tests.support.lua_tokens import Token, calls_of, tokens_of, undeclared, until_closed

FILE_LINES_MAX = 100
FLAT_LINES_MAX = 160
#: A script for vectors has two more sections, and lists that it writes at its end.
VECTOR_LINES_MAX = 110
VECTOR_FLAT_LINES_MAX = 190
INCLUDE_LINES_MAX = 40
LINE_CHARS_MAX = 100

SECTIONS = ("Moves", "KEYS", "ARGV", "EACH_KEYS", "EACH_ARGV", "Returns")
OPTIONAL = {"Moves", "EACH_KEYS", "EACH_ARGV"}
KEY_TYPES = {"hash", "list", "zset", "set", "string", "stream"}
VARIADIC = {"list", "pairs"}
ARGUMENT_TYPES = {"int", "str", "json", *VARIADIC}
MOVE_WORDS = {*Status, "(none)", "(any)", "(lost)", "final", "archived"}

#: Commands that Redis 7.0 has and that are fit for scripts, by the type of their one key.
COMMANDS = {
    "hash": "HDEL HEXISTS HGET HGETALL HINCRBY HLEN HMGET HSCAN HSET HSETNX",
    "list": "LLEN LPOP LPUSH LRANGE LTRIM RPUSH",
    "zset": "ZADD ZCARD ZRANGE ZRANGEBYSCORE ZREM ZSCORE",
    "set": "SADD SCARD SISMEMBER SMEMBERS SREM",
    "string": "GET SET",
    "stream": "XADD XDEL XLEN XRANGE XTRIM",
    "any": "DEL EXISTS PERSIST PEXPIRE PTTL",
    "no key": "TIME",
    "channel": "PUBLISH",
}
#: Commands of which every argument is a key.
ALL_KEYS = {"DEL", "EXISTS"}
TYPE_OF = {command: kind for kind, names in COMMANDS.items() for command in names.split()}

BANNED = {"cjson", "cmsgpack", "pcall", "loadstring", "random", "randomseed", "os"}

INCLUDE = re.compile(r'--- @include "(\w+)"')


@dataclass(frozen=True)
class Item:
    """One line of a header section."""

    name: str
    type: str
    meaning: str


@dataclass(frozen=True)
class Include:
    """One function that scripts share, in a file of its name."""

    name: str
    text: str

    @cached_property
    def parameters(self) -> list[str]:
        match = re.search(rf"local function {self.name}\(([^)]*)\)", self.text)
        return [part.strip() for part in match.group(1).split(",")] if match else []

    @cached_property
    def key_types(self) -> dict[str, str]:
        """Parameters that are used as keys, with the type that the commands on them need."""
        calls = calls_of(tokens_of(self.text), "redis.call")
        return {
            arguments[1][0].text: TYPE_OF.get(arguments[0][0].text.strip("'"), "any")
            for arguments in calls
            if len(arguments) > 1 and arguments[1][0].text in self.parameters
        }

    def faults(self) -> Iterator[str]:
        tokens = tokens_of(self.text)
        if not self.text.startswith("-- "):
            yield "does not begin with a comment that says what it does"
        if len(re.findall(r"^local function ", self.text, re.MULTILINE)) != 1 or (
            f"local function {self.name}(" not in self.text
        ):
            yield f"must hold exactly one function, {self.name}"
        if INCLUDE.search(self.text):
            yield "includes another: only scripts include"
        if len(self.text.splitlines()) > INCLUDE_LINES_MAX:
            yield f"has more than {INCLUDE_LINES_MAX} lines"
        if any(token.text == "KEYS" for token in tokens):
            yield "uses KEYS, which only scripts may name"
        for one, two, three in zip(tokens, tokens[1:], tokens[2:], strict=False):
            if (one.text, two.text, three.kind) == ("ARGV", "[", "number"):
                yield f"uses ARGV[{three.text}]; it must be given the index"
        keys = {name: "any" for name in self.parameters}
        yield from call_faults(tokens, {**keys, **self.key_types}, {})
        yield from undeclared(tokens, set())


@dataclass(frozen=True)
class Source:
    """A script, taken apart."""

    name: str
    text: str
    includes: Mapping[str, Include]

    @cached_property
    def header(self) -> str:
        return self.text[4 : self.text.index("]]")]

    @cached_property
    def sections(self) -> dict[str, list[str]]:
        parts = re.split(r"^(\w+):$", self.header, flags=re.MULTILINE)
        lines = [
            [line.strip() for line in part.splitlines() if line.strip()] for part in parts[2::2]
        ]
        return dict(zip(parts[1::2], lines, strict=True))

    def items(self, section: str) -> list[Item]:
        parts = [[*line.split(maxsplit=2), "", ""] for line in self.sections.get(section, ())]
        return [Item(*part[:3]) for part in parts]

    @property
    def names(self) -> list[str]:
        return [item.name for section in SECTIONS[1:5] for item in self.items(section)]

    @property
    def is_vector(self) -> bool:
        """It moves several transactions of a shard, each with keys and arguments of its own."""
        return "EACH_KEYS" in self.sections

    @cached_property
    def included(self) -> list[str]:
        return INCLUDE.findall(self.text)

    @cached_property
    def code(self) -> list[str]:
        """Lines after the header and the includes."""
        lines = self.text[self.text.index("]]") + 3 :].splitlines()
        return [line for line in lines if not INCLUDE.fullmatch(line)]

    @cached_property
    def bindings(self) -> list[str]:
        return self.code[: self.code.index("")] if "" in self.code else self.code

    @cached_property
    def body(self) -> list[Token]:
        return tokens_of("\n".join(self.code[len(self.bindings) :]))

    @property
    def flat(self) -> str:
        known = {name: include.text for name, include in self.includes.items()}
        return INCLUDE.sub(lambda match: known.get(match.group(1), ""), self.text)


def faults_of(name: str, text: str, includes: Mapping[str, str]) -> list[str]:
    """Everything in which a script does not keep to its header or to the rules."""
    known = {each: Include(each, content) for each, content in includes.items()}
    if not text.startswith("--[[\n") or "]]\n" not in text:
        return ["does not begin with a header"]
    source = Source(name, text, known)
    return [
        *header_faults(source),
        *include_faults(source),
        *binding_faults(source),
        *answer_faults(source),
        *body_faults(source),
        *size_faults(source),
    ]


def include_file_faults(name: str, text: str) -> list[str]:
    return list(Include(name, text).faults())


# Header.


def header_faults(source: Source) -> Iterator[str]:
    if not source.header.split("\n\n")[0].strip():
        yield "the header does not say what the script does"
    present = list(source.sections)
    if present != [section for section in SECTIONS if section in present]:
        yield f"the header has the sections {', '.join(present)}"
    for section in SECTIONS:
        if section not in present and section not in OPTIONAL:
            yield f"the header has no section {section}"
    yield from move_faults(source)
    yield from item_faults(source)


def move_faults(source: Source) -> Iterator[str]:
    for line in source.sections.get("Moves", ()):
        words = line.split(" -> ")
        if len(words) != 2 or not MOVE_WORDS.issuperset(words):
            yield f"nobody knows the move {line!r}"
    written = [call for call in calls_of(source.body, "redis.call") if call[0][0].text == "'HSET'"]
    moves = any(argument[0].text == "'status'" for call in written for argument in call)
    if (moves or "enqueue" in source.included) and "Moves" not in source.sections:
        yield "changes the status, but the header has no section Moves"


def item_faults(source: Source) -> Iterator[str]:
    kinds = {"KEYS": KEY_TYPES, "ARGV": ARGUMENT_TYPES}
    for section, types in [*kinds.items(), *((f"EACH_{n}", kind) for n, kind in kinds.items())]:
        for item in source.items(section):
            if item.type not in types:
                yield f"{section} {item.name} has the type {item.type!r}"
            if not item.meaning:
                yield f"{section} {item.name} has no meaning"
    yield from (f"{name} is listed twice" for name in duplicates(source.names))
    last = "EACH_ARGV" if source.is_vector else "ARGV"
    early = [*source.items("ARGV"), *source.items("EACH_ARGV")]
    if any(item.type in VARIADIC for item in early if item not in source.items(last)[-1:]):
        yield "only the last argument may be a list"
    if ("EACH_KEYS" in source.sections) != ("EACH_ARGV" in source.sections):
        yield "EACH_KEYS and EACH_ARGV belong together"


# Includes.


def include_faults(source: Source) -> Iterator[str]:
    yield from (f"includes {name} twice" for name in duplicates(source.included))
    for name in source.included:
        if name not in source.includes:
            yield f"includes {name}, which does not exist"
            continue
        if circle := cycle_from(name, source.includes, ()):
            yield f"includes go round in a circle: {' > '.join(circle)}"
        if not any(token.text == name for token in source.body):
            yield f"includes {name} and does not use it"


def cycle_from(
    name: str, includes: Mapping[str, Include], path: tuple[str, ...]
) -> tuple[str, ...]:
    if name in path:
        return (*path, name)
    inner = INCLUDE.findall(includes[name].text) if name in includes else []
    found = (cycle_from(each, includes, (*path, name)) for each in inner)
    return next((circle for circle in found if circle), ())


# Keys and arguments.


def bindings_of(source: Source) -> Iterator[tuple[str, list[str]]]:
    """For each name of the header the lines that may bind it."""
    for n, item in enumerate(source.items("KEYS"), start=1):
        yield item.name, [f"local {item.name} = KEYS[{n}]"]
    for n, item in enumerate(source.items("ARGV"), start=1):
        if item.type in VARIADIC:
            yield item.name, [f"local {item.name} = {n}"]
        elif item.type == "int":
            given = f"ARGV[{n}]"
            yield item.name, [f"local {item.name} = {x}" for x in (given, f"tonumber({given})")]
        else:
            yield item.name, [f"local {item.name} = ARGV[{n}]"]


def binding_faults(source: Source) -> Iterator[str]:
    expected = list(bindings_of(source))
    for (name, choices), line in zip(expected, source.bindings, strict=False):
        if line not in choices:
            yield f"{name} must be bound as {' or '.join(map(repr, choices))}, was {line!r}"
            return
    if len(source.bindings) != len(expected):
        yield f"{len(source.bindings)} names are bound, but the header lists {len(expected)}"
    used = [token.text for token in source.body if token.kind == "name"]
    yield from (f"{name} is never used" for name, _ in expected if name not in used)
    if source.is_vector:
        yield from vector_faults(source, used)
    yield from raw_index_faults(source)


def vector_faults(source: Source, used: Sequence[str]) -> Iterator[str]:
    """What each transaction has is given to one function, in the order of the header."""
    own_keys, own = source.items("EACH_KEYS"), source.items("EACH_ARGV")
    names = ["..." if item.type in VARIADIC else item.name for item in own]
    given = [*(item.name for item in own_keys), *names]
    code = re.sub(r"\s+", " ", "\n".join(source.code))
    signature = f"local function {source.name}({', '.join(given)})"
    if signature not in code:
        yield f"must declare {signature!r}"
    first_key = len(source.items("KEYS")) + 1
    at = len(source.items("ARGV")) + 1
    walk = f"each(KEYS, {first_key}, {len(own_keys)}, ARGV, {at}, {source.name})"
    if f"local answers = {walk}" not in code or not code.rstrip().endswith("return answers"):
        yield f"must end with the answers of {walk!r}"
    for name in given:
        if (code.count("...") if name == "..." else used.count(name)) < 2:
            yield f"{name} is never used"


def without(tokens: Sequence[Token], name: str) -> list[Token]:
    """All tokens but the arguments of the call of one function."""
    start = next(n for n, token in enumerate(tokens) if token.text == name) + 1
    inside = until_closed(tokens, start)
    return [*tokens[: start + 1], *tokens[start + 1 + len(inside) :]]


def raw_index_faults(source: Source) -> Iterator[str]:
    walk = calls_of(source.body, "each") if source.is_vector else []
    body = source.body if len(walk) != 1 else without(source.body, "each")
    padded = [Token("", ""), *body, Token("", "")]
    for before, token, after in zip(padded, padded[1:], padded[2:], strict=False):
        if token.text == "KEYS":
            yield "uses KEYS below the names"
        if token.text == "ARGV" and (before.text not in ("(", "#") or after.text == "["):
            yield "uses ARGV below the names, other than in unpack"


# Answers.


def answer_faults(source: Source) -> Iterator[str]:
    listed = [item.name for item in source.items("Returns")]
    yield from (f"answer {name} is listed twice" for name in duplicates(listed))
    given = set()
    padded = [*source.body, Token("", ""), Token("", "")]
    for one, two, three in zip(padded, padded[1:], padded[2:], strict=False):
        if one.text != "return" or (source.is_vector and two.text == "answers"):
            continue
        if two.text == "{" and three.kind == "string":
            given.add(three.text.strip("'"))
        else:
            yield f"returns {two.text}{three.text} instead of {{'WORD', ...}}"
    yield from (
        f"answers {word}, which the header does not list" for word in sorted(given - set(listed))
    )
    yield from (f"never answers {word}" for word in listed if word not in given)


# What scripts may do.


def body_faults(source: Source) -> Iterator[str]:
    key_types = {
        item.name: item.type for item in (*source.items("KEYS"), *source.items("EACH_KEYS"))
    }
    used = {name: source.includes[name] for name in source.included if name in source.includes}
    # An error of one transaction must not stop a vector half-way: `each` is there for that.
    without_each = {name: each for name, each in source.includes.items() if name != "each"}
    everything = tokens_of(replace(source, includes=without_each).flat)
    for name in sorted(BANNED.intersection(token.text for token in everything)):
        yield f"uses {name}"
    yield from call_faults(source.body, {**key_types, **key_tables(source.body, key_types)}, used)
    yield from json_faults(source)
    declared = {source.name, "answers"} if source.is_vector else set()
    yield from undeclared(source.body, {*source.names, *used, *declared})


def call_faults(
    tokens: Sequence[Token], keys: Mapping[str, str], includes: Mapping[str, Include]
) -> Iterator[str]:
    """Every key is one that the script was given, and of the type that its command needs."""
    for arguments in calls_of(tokens, "redis.call"):
        command = arguments[0][0].text.strip("'")
        needed = TYPE_OF.get(command)
        if arguments[0][0].kind != "string" or needed is None:
            yield f"calls {command}, which is not among the commands that scripts may use"
        elif needed not in ("no key", "channel"):
            for argument in arguments[1:] if command in ALL_KEYS else arguments[1:2]:
                yield from key_faults(command, argument, needed, keys)
    for include in includes.values():
        for arguments in calls_of(tokens, include.name):
            for parameter, argument in zip(include.parameters, arguments, strict=False):
                if parameter in include.key_types:
                    yield from key_faults(
                        include.name, argument, include.key_types[parameter], keys
                    )


def key_faults(
    called: str, argument: Sequence[Token], needed: str, keys: Mapping[str, str]
) -> Iterator[str]:
    name = argument[0].text
    lookup = [token.text for token in argument[1:]]
    if name not in keys or (lookup and (lookup[0] != "[" or lookup[-1] != "]" or len(lookup) != 3)):
        shown = " ".join(token.text for token in argument)
        yield f"{called} is given the key {shown!r}, which is none of KEYS"
    elif "any" not in (needed, keys[name]) and needed != keys[name]:
        yield f"{called} needs a {needed}, but {name} is a {keys[name]}"


def key_tables(tokens: Sequence[Token], keys: Mapping[str, str]) -> dict[str, str]:
    """Names that stand for one of several keys of a type.

    `local lists = {queued = queued, ...}`, and `for _, list in ipairs({queued, ...})`.
    """
    found = {}
    for start, brace in enumerate(tokens):
        before = [token.text for token in tokens[max(0, start - 4) : start]]
        inside = [token.text for token in until_closed(tokens, start)] if brace.text == "{" else []
        if before[-3:-2] == ["local"] and before[-1:] == ["="]:
            name = before[-2]
            values = [inside[n + 1] for n, text in enumerate(inside[:-1]) if text == "="]
        elif before[1:] == ["in", "ipairs", "("]:
            name, values = before[0], inside[::2]
        else:
            continue
        types = {keys.get(value, "") for value in values}
        if len(types) == 1 and "" not in types:
            found[name] = types.pop()
    return found


def json_faults(source: Source) -> Iterator[str]:
    arguments = (*source.items("ARGV"), *source.items("EACH_ARGV"))
    names = {item.name for item in arguments if item.type == "json"}
    padded = [Token("", ""), Token("", ""), *source.body, Token("", "")]
    for one, two, token, after in zip(padded, padded[1:], padded[2:], padded[3:], strict=False):
        if token.text in names and token.kind == "name":
            if {two.text, after.text} & set("+-*/%^"):
                yield f"calculates with the JSON {token.text}"
            if two.text == "(" and one.text in ("tonumber", "match", "find", "gsub", "sub"):
                yield f"looks into the JSON {token.text}"


# Sizes.


def size_faults(source: Source) -> Iterator[str]:
    lines = source.text.splitlines()
    lines_max = VECTOR_LINES_MAX if source.is_vector else FILE_LINES_MAX
    if len(lines) > lines_max:
        yield f"has {len(lines)} lines, more than {lines_max}"
    flat = len(source.flat.splitlines())
    flat_max = VECTOR_FLAT_LINES_MAX if source.is_vector else FLAT_LINES_MAX
    if flat > flat_max:
        yield f"has {flat} lines with its includes, more than {flat_max}"
    if any(len(line) > LINE_CHARS_MAX for line in lines):
        yield f"has lines of more than {LINE_CHARS_MAX} characters"


def duplicates(names: Sequence[str]) -> list[str]:
    return sorted({name for name in names if names.count(name) > 1})
