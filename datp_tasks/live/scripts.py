"""Loading and calling the Lua scripts.

Each file in `lua/` starts with a header that says what the script does, which keys and arguments
it takes and what it may answer; `tests/tidy/test_script_headers.py` holds bodies to their headers.
A script answers with a word and details; the store turns words into results.

A script whose header has the sections EACH_KEYS and EACH_ARGV moves a vector of transactions of
one shard: what they share is sent once, and each has its own answer. Calls are described one by
one, and the runner puts those that share a frame into one EVALSHA; or together, where all of a hop
make the same transition.
"""

from __future__ import annotations

import hashlib
import logging
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple, Self

from redis import Redis
from redis.exceptions import NoScriptError, ResponseError

from datp_tasks.live import transition_log
from datp_tasks.live.cluster_redis import ClusterRedis
from datp_tasks.live.keys import CALL_TRANSACTIONS_MAX
from datp_tasks.live.pipelining import Command, exchange

FOLDER = Path(__file__).resolve().parent / "lua"
INCLUDE = re.compile(r'^--- @include "(\w+)"$', re.MULTILINE)
SECTION = re.compile(r"^(Moves|KEYS|ARGV|EACH_KEYS|EACH_ARGV|Returns):$", re.MULTILINE)

#: Characters in one call, beyond which no other transaction is added to it. So what a vector leaves
#: in the journal can be read again in bounded parts.
CALL_BYTES_MAX = 1_000_000

Reply = list[Any]
Argument = str | int


@dataclass(frozen=True, slots=True)
class Script:
    """One transition: name, flattened source, and what its header says."""

    name: str
    source: str
    sha: str
    #: Shared by all transactions of a call.
    keys: tuple[str, ...]
    arguments: tuple[str, ...]
    #: Those that each transaction of a vector has; empty if the script takes one at a time.
    own_keys: tuple[str, ...]
    own_arguments: tuple[str, ...]
    answers: tuple[str, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Frame:
    """What the calls of a vector share. Those with the same frame travel together."""

    script: Script
    keys: tuple[str, ...] = ()
    arguments: tuple[Argument, ...] = ()


class ScriptCall(NamedTuple):
    """One transition of one transaction: what it shares with others, and what is its own."""

    frame: Frame
    keys: tuple[str, ...]
    arguments: tuple[Argument, ...]

    @property
    def script(self) -> Script:
        return self.frame.script

    @property
    def all_keys(self) -> tuple[str, ...]:
        return self.frame.keys + self.keys

    def argument(self, name: str) -> Argument | None:
        """An argument by the name that the header gives it."""
        script = self.script
        own = script.own_arguments or script.arguments
        if name in own:
            return self.arguments[own.index(name)]
        if name in script.arguments:
            return self.frame.arguments[script.arguments.index(name)]
        return None


@dataclass(frozen=True, slots=True)
class ScriptCalls:
    """The same transition of many transactions. Its reply is the list of their replies."""

    script: Script
    #: Of each, beginning with its id.
    arguments: Sequence[tuple[Argument, ...]]
    vectors: list[Vector]
    #: Where the vectors put the replies.
    replies: list[Any]

    def each(self) -> Iterator[tuple[ScriptCall, Reply]]:
        """One by one, each with its reply, in the order in which they were sent."""
        width = len(self.script.own_keys)
        for vector in self.vectors:
            keys = iter(vector.keys[len(vector.frame.keys) :])
            for place in vector.places:
                own = tuple(islice(keys, width))
                yield ScriptCall(vector.frame, own, self.arguments[place]), self.replies[place]


@cache
def script(name: str) -> Script:
    source = flatten((FOLDER / f"{name}.lua").read_text())
    sections = header_sections(source)
    return Script(
        name=name,
        source=source,
        sha=hashlib.sha1(source.encode(), usedforsecurity=False).hexdigest(),
        keys=_first_words(sections.get("KEYS", "")),
        arguments=_first_words(sections.get("ARGV", "")),
        own_keys=_first_words(sections.get("EACH_KEYS", "")),
        own_arguments=_first_words(sections.get("EACH_ARGV", "")),
        answers=_first_words(sections.get("Returns", "")),
    )


@cache
def _alone(script: Script) -> Frame:
    return Frame(script)


def call(script: Script, keys: tuple[str, ...], arguments: tuple[Argument, ...]) -> ScriptCall:
    """A call of a script that takes one transaction at a time."""
    return ScriptCall(_alone(script), keys, arguments)


def script_names() -> list[str]:
    return sorted(path.stem for path in FOLDER.glob("*.lua"))


def flatten(source: str) -> str:
    """Put the included functions in the place of their include lines."""

    def included(match: re.Match[str]) -> str:
        return (FOLDER / "includes" / f"{match.group(1)}.lua").read_text()

    return INCLUDE.sub(included, source)


def header_sections(source: str) -> dict[str, str]:
    """The header's sections by name."""
    header = source[source.index("--[[") + 4 : source.index("]]")]
    parts = SECTION.split(header)
    return dict(zip(parts[1::2], parts[2::2], strict=True))


def _first_words(section: str) -> tuple[str, ...]:
    return tuple(line.split()[0] for line in section.splitlines() if line.strip())


class ScriptRunner:
    """Runs many calls in one round trip; loads a script again when the server forgot it."""

    def __init__(self, redis: Redis) -> None:
        self._redis = redis
        #: Counted for the benchmark and for tests: what a transaction costs.
        self.round_trips = 0
        self.calls = 0

    def run(self, calls: Sequence[ScriptCall | ScriptCalls]) -> list[Reply]:
        """The reply to each call. Those with one frame are served together, where the first is."""
        if not calls:
            return []
        replies: list[Any] = [None] * len(calls)
        vectors = vectors_of(calls, replies)
        answers = self._send(vectors) if vectors else []
        errors = [each.spread(answer) for each, answer in zip(vectors, answers, strict=True)]
        for error in errors:
            if error is not None:
                raise error
        if transition_log.log.isEnabledFor(logging.DEBUG):
            transition_log.say(one_by_one(calls, replies))
        return replies

    def _send(self, vectors: Sequence[Vector]) -> list[Any]:
        replies = self.send([vector.command() for vector in vectors])
        missing = [i for i, reply in enumerate(replies) if isinstance(reply, NoScriptError)]
        if missing:
            # With its source a script runs on any server, and is known there from then on.
            sources = [vectors[i].command(with_source=True) for i in missing]
            for i, reply in zip(missing, self.send(sources), strict=True):
                replies[i] = reply
        return replies

    def send(self, commands: Sequence[Command]) -> list[Any]:
        """One write to each server, then the replies, in the order of the commands."""
        self.round_trips += 1
        self.calls += len(commands)
        if isinstance(self._redis, ClusterRedis):
            return self._redis.servers.send(commands)
        return exchange([(self._redis, commands)])[0]


@dataclass(slots=True)
class Vector:
    """Transactions that one call of a script moves."""

    frame: Frame
    keys: list[str]
    arguments: list[Argument]
    #: The replies to all that were asked for together, and where those of this vector belong.
    replies: list[Any]
    places: list[int]
    #: Characters in the arguments, where they are counted.
    size: int = 0

    @classmethod
    def of(cls, frame: Frame, replies: list[Any]) -> Self:
        """One without transactions."""
        return cls(frame, [*frame.keys], [*frame.arguments], replies, [])

    @property
    def is_full(self) -> bool:
        return len(self.places) >= CALL_TRANSACTIONS_MAX or self.size >= CALL_BYTES_MAX

    def command(self, *, with_source: bool = False) -> Command:
        script = self.frame.script
        head = ("EVAL", script.source) if with_source else ("EVALSHA", script.sha)
        return (*head, len(self.keys), *self.keys, *self.arguments)

    def spread(self, answer: Any) -> Exception | None:
        """Put the reply to each into its place; or the first error. An error of the call is that of
        each."""
        if isinstance(answer, Exception):
            return answer
        if not self.frame.script.own_keys:
            self.replies[self.places[0]] = answer
            return None
        for place, reply in zip(self.places, answer, strict=True):
            if reply[0] == "ERROR":
                return ResponseError(reply[1])
            self.replies[place] = reply
        return None


def one_by_one(
    calls: Sequence[ScriptCall | ScriptCalls], replies: Sequence[Any]
) -> Iterator[tuple[ScriptCall, Reply]]:
    """Every transition with its reply."""
    for call, reply in zip(calls, replies, strict=True):
        if isinstance(call, ScriptCalls):
            yield from call.each()
        else:
            yield call, reply


def vectors_of(calls: Sequence[ScriptCall | ScriptCalls], replies: list[Any]) -> list[Vector]:
    """Those that share a frame go together, up to a limit; in the order of their first calls."""
    vectors: list[Vector] = []
    together: dict[Frame, Vector] = {}
    is_long = are_long(call.arguments for call in calls if isinstance(call, ScriptCall))
    for place, call in enumerate(calls):
        if isinstance(call, ScriptCalls):
            replies[place] = call.replies
            vectors += call.vectors
            continue
        frame, keys, arguments = call
        vector = together.get(frame)
        if vector is None or vector.is_full or not frame.script.own_keys:
            vector = together[frame] = Vector.of(frame, replies)
            vectors.append(vector)
        vector.places.append(place)
        vector.keys += keys
        if frame.script.own_keys:
            vector.arguments.append(len(arguments))
        vector.arguments += arguments
        if is_long:
            vector.size += size_of(arguments)
    return vectors


def are_long(arguments: Iterable[Sequence[Argument]]) -> bool:
    """Only where all of them are long together can a vector be too long."""
    return size_of([each for own in arguments for each in own]) >= CALL_BYTES_MAX


def size_of(arguments: Sequence[Argument]) -> int:
    """Characters in them; numbers are short."""
    try:
        return sum(map(len, arguments))  # type: ignore[arg-type]
    except TypeError:
        return sum([len(each) for each in arguments if type(each) is str])
