"""Loading and calling the Lua scripts.

Each file in `lua/` starts with a header that says what the script does, which keys and arguments
it takes and what it may answer; `tests/unit/test_script_headers.py` holds bodies to their headers.
A script answers with a word and details; the store turns words into results.
"""

from __future__ import annotations

import hashlib
import logging
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from hiredis import pack_command
from redis import Redis
from redis.exceptions import NoScriptError, ResponseError

from datp_tasks.live import said

FOLDER = Path(__file__).resolve().parent / "lua"
INCLUDE = re.compile(r'^--- @include "(\w+)"$', re.MULTILINE)
SECTION = re.compile(r"^(Moves|KEYS|ARGV|Returns):$", re.MULTILINE)

#: The stub of the C function allows for one word only.
_pack: Callable[[tuple[str | int, ...]], bytes] = pack_command  # type: ignore[assignment]

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


def _read(connection: Any) -> Any:
    """The next reply; an error that the server answers with is a reply, too."""
    try:
        return connection.read_response()
    except ResponseError as error:
        return error


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
            self._load({calls[i][0] for i in missing})
            for i, reply in zip(missing, self._send([calls[i] for i in missing]), strict=True):
                replies[i] = reply
        for reply in replies:
            if isinstance(reply, Exception):
                raise reply
        if said.log.isEnabledFor(logging.DEBUG):
            said.say(calls, replies)
        return replies

    def _send(self, calls: Sequence[Call]) -> list[Any]:
        return self.send(
            [
                ("EVALSHA", called.sha, len(keys), *keys, *arguments)
                for called, keys, arguments in calls
            ]
        )

    def send(self, commands: Sequence[tuple[str | int, ...]]) -> list[Any]:
        """What redis-py's pipeline does, at a third of its cost: one write, then the replies."""
        self.round_trips += 1
        self.calls += len(commands)
        packed = b"".join(map(_pack, commands))
        pool = self._redis.connection_pool
        # Its methods are public, but have no types.
        connection: Any = pool.get_connection()
        try:
            connection.send_packed_command([packed])
            return [_read(connection) for _ in commands]
        except BaseException:
            # Replies that nobody has read would be taken for those of the next caller.
            connection.disconnect()
            raise
        finally:
            pool.release(connection)

    def _load(self, scripts: set[Script]) -> None:
        for each in scripts:
            self._redis.script_load(each.source)
