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
    """What the calls of a vector share. Those that are described one by one and have the same frame
    travel together."""

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
    """The same transition of many transactions, put together for their shards. Its reply is the
    list of their replies."""

    script: Script
    #: Of each, beginning with its id.
    arguments: Sequence[tuple[Argument, ...]]
    vectors: list[Vector]

    def each(self) -> Iterator[tuple[int, ScriptCall]]:
        """One by one, in the order in which they are sent, with their places."""
        width = len(self.script.own_keys)
        for vector in self.vectors:
            keys = iter(vector.keys[len(vector.frame.keys) :])
            for place in vector.places:
                own = tuple(islice(keys, width))
                yield place, ScriptCall(vector.frame, own, self.arguments[place])


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
        """The reply to each call; an error of one is raised when all were sent. Those that are
        described one by one and share a frame are served together, where the first is."""
        replies: list[Any] = [None] * len(calls)
        vectors = vectors_of(calls, replies)
        answers = self._send(vectors) if vectors else []
        for vector, answer in zip(vectors, answers, strict=True):
            vector.spread(answer)
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
    """What one EVALSHA takes: transactions of one shard, or the call of another kind of script."""

    frame: Frame
    keys: list[str]
    arguments: list[Argument]
    #: Where its replies belong among those to all that were described together.
    places: list[int]
    replies: list[Any]
    #: Characters in the arguments, where they are counted.
    size: int = 0

    @classmethod
    def of(cls, frame: Frame, replies: list[Any]) -> Self:
        """One to which transactions are added."""
        return cls(frame, [*frame.keys], [*frame.arguments], [], replies)

    def add(self, place: int, keys: tuple[str, ...], arguments: tuple[Argument, ...]) -> None:
        """One more transaction."""
        self.places.append(place)
        self.keys += keys
        self.arguments.append(len(arguments))
        self.arguments += arguments

    @property
    def is_full(self) -> bool:
        return len(self.places) >= CALL_TRANSACTIONS_MAX or self.size >= CALL_BYTES_MAX

    def command(self, *, with_source: bool = False) -> Command:
        script = self.frame.script
        head = ("EVAL", script.source) if with_source else ("EVALSHA", script.sha)
        return (*head, len(self.keys), *self.keys, *self.arguments)

    def spread(self, answer: Any) -> None:
        """Put the reply to each into its place; an error of the call or of one is raised."""
        if isinstance(answer, Exception):
            raise answer
        if not self.frame.script.own_keys:
            self.replies[self.places[0]] = answer
            return
        for place, reply in zip(self.places, answer, strict=True):
            if reply[0] == "ERROR":
                raise ResponseError(reply[1])
            self.replies[place] = reply


def one_by_one(
    calls: Sequence[ScriptCall | ScriptCalls], replies: Sequence[Any]
) -> Iterator[tuple[ScriptCall, Reply]]:
    """Every transition with its reply."""
    for call, reply in zip(calls, replies, strict=True):
        if isinstance(call, ScriptCalls):
            yield from ((one, reply[place]) for place, one in call.each())
        else:
            yield call, reply


def vectors_of(calls: Sequence[ScriptCall | ScriptCalls], replies: list[Any]) -> list[Vector]:
    """What is sent for these, in the order of their first calls. Those that are described one by
    one and share a frame go together, up to a limit."""
    vectors: list[Vector] = []
    together: dict[Frame, Vector] = {}
    is_long = are_long(call.arguments for call in calls if isinstance(call, ScriptCall))
    for place, call in enumerate(calls):
        if isinstance(call, ScriptCalls):
            found = replies[place] = [None] * len(call.arguments)
            for vector in call.vectors:
                vector.replies = found
            vectors += call.vectors
            continue
        frame, keys, arguments = call
        if not frame.script.own_keys:
            both = [*frame.keys, *keys], [*frame.arguments, *arguments]
            vectors.append(Vector(frame, *both, [place], replies))
            continue
        if frame not in together or together[frame].is_full:
            together[frame] = Vector.of(frame, replies)
            vectors.append(together[frame])
        vector = together[frame]
        vector.add(place, keys, arguments)
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
