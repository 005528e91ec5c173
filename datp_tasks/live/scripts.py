"""Loading and calling the Lua scripts.

Each file in `lua/` starts with a header that says what the script does, which keys and arguments
it takes and what it may answer; `tests/unit/test_script_headers.py` holds bodies to their headers.
A script answers with a word and details; the store turns words into results.
"""

from __future__ import annotations

import hashlib
import logging
import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from redis import Redis
from redis.exceptions import NoScriptError

from datp_tasks.live import said
from datp_tasks.live.cluster_redis import ClusterRedis
from datp_tasks.live.wire import Command, exchange

FOLDER = Path(__file__).resolve().parent / "lua"
INCLUDE = re.compile(r'^--- @include "(\w+)"$', re.MULTILINE)
SECTION = re.compile(r"^(Moves|KEYS|ARGV|Returns):$", re.MULTILINE)

Reply = list[Any]
#: One call of a script: its keys, then its arguments.
Call = tuple["Script", tuple[str, ...], tuple[str | int, ...]]


@dataclass(frozen=True, slots=True)
class Script:
    """One transition: name, flattened source, and what its header says."""

    name: str
    source: str
    sha: str
    keys: tuple[str, ...]
    arguments: tuple[str, ...]
    answers: tuple[str, ...]


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
        answers=_first_words(sections.get("Returns", "")),
    )


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

    def run(self, calls: Sequence[Call]) -> list[Reply]:
        if not calls:
            return []
        replies = self._send(calls)
        missing = [i for i, reply in enumerate(replies) if isinstance(reply, NoScriptError)]
        if missing:
            # With its source a script runs on any server, and is known there from then on.
            again = self._send([calls[i] for i in missing], with_source=True)
            for i, reply in zip(missing, again, strict=True):
                replies[i] = reply
        for reply in replies:
            if isinstance(reply, Exception):
                raise reply
        if said.log.isEnabledFor(logging.DEBUG):
            said.say(calls, replies)
        return replies

    def _send(self, calls: Sequence[Call], *, with_source: bool = False) -> list[Any]:
        if with_source:
            return self.send(
                [("EVAL", c.source, len(keys), *keys, *args) for c, keys, args in calls]
            )
        return self.send([("EVALSHA", c.sha, len(keys), *keys, *args) for c, keys, args in calls])

    def send(self, commands: Sequence[Command]) -> list[Any]:
        """One write to each server, then the replies, in the order of the commands."""
        self.round_trips += 1
        self.calls += len(commands)
        if isinstance(self._redis, ClusterRedis):
            return self._redis.servers.send(commands)
        return exchange([(self._redis, commands)])[0]
