"""What belongs to a room stays in it, also where imports do not show it. Part of `make lint`."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import datp_tasks
from tests.support.parsed import parsed

PACKAGE = Path(datp_tasks.__file__).parent
MODULES = sorted(PACKAGE.rglob("*.py"))

#: Rooms that may send commands to Redis; the others ask the live room.
MAY_TALK_TO_REDIS = ("live/", "local/", "testing/")
#: Rooms that may hold SQL; embedded servers and the test kit make databases.
MAY_HOLD_SQL = ("record/", "local/", "testing/")
#: The kit is a runtime for tests: it opens the container and looks into all of it.
MAY_KNOW_THE_CONTAINER = ("runtime/", "testing/")
SQL = re.compile(
    r"\s*(SELECT\s.*|INSERT\s+INTO\s.*|UPDATE\s+\S+\s+SET\s.*|DELETE\s+FROM\s.*"
    r"|WITH\s+\w+\s+AS\s.*|(CREATE|ALTER|DROP|TRUNCATE)\s+(TABLE|INDEX|DATABASE|VIEW)\s.*"
    r"|LOCK\s+TABLE\s.*|COPY\s+\w+\s.*(FROM|TO)\s.*)",
    re.DOTALL,
)


@cache
def tree(path: Path) -> ast.Module:
    return parsed(path.read_text())


def outside(rooms: tuple[str, ...]) -> Iterator[tuple[str, ast.Module]]:
    for path in MODULES:
        name = path.relative_to(PACKAGE).as_posix()
        if not name.startswith(rooms):
            yield name, tree(path)


def redis_commands(module: ast.AST) -> list[int]:
    """A command on something that is called redis: `live.redis.get(…)`, `self._redis.set(…)`."""
    found = []
    for node in ast.walk(module):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            owner = node.func.value
            name = owner.attr if isinstance(owner, ast.Attribute) else getattr(owner, "id", "")
            if name in ("redis", "_redis") and node.func.attr != "close":
                found.append(node.lineno)
    return found


def sql_texts(module: ast.AST) -> list[int]:
    """Texts that begin like a statement; in an f-string, its first piece."""
    return [
        node.lineno
        for node in ast.walk(module)
        if isinstance(node, ast.Constant)
        and isinstance(node.value, str)
        and SQL.fullmatch(node.value)
    ]


def places_of_the_container(module: ast.AST) -> list[int]:
    """Where it is imported, opened or taken; also in an annotation that is a text."""
    found = []
    for node in ast.walk(module):
        match node:
            case ast.Name(id="Container") | ast.alias(name="Container"):
                found.append(node.lineno)
            case ast.ImportFrom(module="datp_tasks.runtime.container"):
                found.append(node.lineno)
            case ast.arg(annotation=ast.Constant(value=str() as text)) if "Container" in text:
                found.append(node.lineno)
    return sorted(set(found))


def test_commands_to_redis_are_in_the_live_room() -> None:
    found = {name: redis_commands(module) for name, module in outside(MAY_TALK_TO_REDIS)}
    assert {name: lines for name, lines in found.items() if lines} == {}


def test_sql_is_in_the_record() -> None:
    found = {name: sql_texts(module) for name, module in outside(MAY_HOLD_SQL)}
    assert {name: lines for name, lines in found.items() if lines} == {}


def test_only_the_place_that_wires_knows_the_container() -> None:
    found = {
        name: places_of_the_container(module) for name, module in outside(MAY_KNOW_THE_CONTAINER)
    }
    assert {name: lines for name, lines in found.items() if lines} == {}


def test_a_command_to_redis_elsewhere_is_found() -> None:
    source = "self.live.redis.get('key')\nself._redis.set('key', 1)\nself.redis.close()"
    assert redis_commands(ast.parse(source)) == [1, 2]


def test_sql_elsewhere_is_found() -> None:
    source = (
        "'SELECT tx_id FROM tx_summary'\nf'DELETE FROM {table}'\n'''\n  UPDATE t SET a = 1'''\n"
        "'SELECT'\n'Update the row'\n'with this as that'"
    )
    assert sorted(sql_texts(ast.parse(source))) == [1, 2, 3]


def test_a_place_that_opens_or_takes_the_container_is_found() -> None:
    source = (
        "def f(a: int, c: Container): ...\ndef g(*, c: 'Container | None' = None): ...\n"
        "from datp_tasks.runtime.container import Container as C\nwith Container.open(x): ...\n"
        "from datp_tasks.runtime.clients import make_client"
    )
    assert places_of_the_container(ast.parse(source)) == [1, 2, 3, 4]
