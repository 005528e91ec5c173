"""House rules that a machine can hold."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path

import pytest

import datp_tasks
from datp_tasks.maintenance import schedule
from datp_tasks.observe.failpoints import POINTS
from datp_tasks.settings import Settings

PACKAGE = Path(datp_tasks.__file__).parent
MODULES = sorted(PACKAGE.rglob("*.py"))
MODULE_LINES_MAX = 400
FUNCTION_LINES_MAX = 70
#: Beside the jobs in `maintenance/`.
NOT_JOBS = {"__init__", "schedule"}

UNITS = ("_s", "_ms", "_max", "_bytes", "_url")
#: Names and counts that need no unit.
WITHOUT_UNIT = {"key_prefix", "shards", "maintenance_group", "steps", "sql_pool_size"}

#: What tells the time of the machine it runs on.
WALL_CLOCKS = {
    ("time", "time"),
    ("time", "time_ns"),
    ("datetime", "now"),
    ("datetime", "utcnow"),
    ("datetime", "today"),
    ("date", "today"),
}
#: Processes of one machine and what a person sees there are not decided by the servers.
MAY_LOOK_AT_THE_WALL_CLOCK = ("clock.py", "local/", "cli/")


def shown(path: Path) -> str:
    return path.relative_to(PACKAGE).as_posix()


def tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text(), str(path))


def calls(module: ast.Module) -> Iterator[ast.Call]:
    return (node for node in ast.walk(module) if isinstance(node, ast.Call))


each_module = pytest.mark.parametrize("path", MODULES, ids=shown)
each_job = pytest.mark.parametrize(
    "path",
    [path for path in sorted((PACKAGE / "maintenance").glob("*.py")) if path.stem not in NOT_JOBS],
    ids=lambda path: str(path.stem),
)


@each_module
def test_a_module_is_short_and_says_what_it_is_for(path: Path) -> None:
    text = path.read_text()
    assert text.count("\n") <= MODULE_LINES_MAX
    assert ast.get_docstring(tree(path))


@each_module
def test_functions_are_short(path: Path) -> None:
    for node in ast.walk(tree(path)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            lines = (node.end_lineno or node.lineno) - node.lineno + 1
            assert lines <= FUNCTION_LINES_MAX, f"{node.name} has {lines} lines"


@each_module
def test_nothing_is_printed_and_nothing_is_left_to_do(path: Path) -> None:
    names = [call.func.id for call in calls(tree(path)) if isinstance(call.func, ast.Name)]
    assert "print" not in names
    assert not re.search(r"\b(TODO|FIXME|XXX|HACK)\b", path.read_text())


@each_module
def test_only_scripts_talk_to_redis_in_lua(path: Path) -> None:
    text = path.read_text()
    assert "redis.call" not in text
    commands = {
        call.func.attr for call in calls(tree(path)) if isinstance(call.func, ast.Attribute)
    }
    assert "eval" not in commands
    assert "evalsha" not in commands or shown(path) == "live/scripts.py"


@each_module
def test_no_wall_clock_decides_anything(path: Path) -> None:
    if shown(path).startswith(MAY_LOOK_AT_THE_WALL_CLOCK):
        return
    for call in calls(tree(path)):
        function = call.func
        if not isinstance(function, ast.Attribute):
            continue
        owner = function.value
        name = owner.attr if isinstance(owner, ast.Attribute) else getattr(owner, "id", "")
        assert (name, function.attr) not in WALL_CLOCKS, f"line {call.lineno}"


@each_job
def test_a_job_is_scheduled_and_has_the_shape_of_a_job(path: Path) -> None:
    assert path.stem in schedule.JOBS
    module = tree(path)
    docstring = ast.get_docstring(module) or ""
    for part in ("Moves", "Knows", "Bound", "Overlap", "Crash"):
        assert re.search(rf"^{part}: {{1,6}}\S", docstring, re.MULTILINE), part
    functions = {node.name: node for node in module.body if isinstance(node, ast.FunctionDef)}
    assert "run_once" in functions
    first = functions["run_once"].args.args[0]
    assert first.arg == "connections"
    assert "Result" in {node.name for node in module.body if isinstance(node, ast.ClassDef)}


@each_job
def test_a_job_has_no_celery_no_sql_and_no_script_of_its_own(path: Path) -> None:
    imported = {
        name.split(".")[0]
        for node in ast.walk(tree(path))
        for name in (
            [alias.name for alias in node.names]
            if isinstance(node, ast.Import)
            else [node.module or ""]
            if isinstance(node, ast.ImportFrom)
            else []
        )
    }
    assert not imported & {"celery", "kombu", "sqlalchemy", "psycopg2"}


def test_every_scheduled_job_has_its_module_and_its_period() -> None:
    settings = Settings()
    for job in schedule.JOBS:
        assert (PACKAGE / "maintenance" / f"{job}.py").exists()
        assert schedule.period_s(settings, job) > 0
    entries = schedule.beat_schedule(settings)
    assert {entry["task"] for entry in entries.values()} == {
        f"datp.maintenance.{job}" for job in schedule.JOBS
    }


@pytest.mark.parametrize("name", [item.name for item in fields(Settings)])
def test_a_setting_has_its_unit_in_its_name(name: str) -> None:
    # A limit may say what it counts before the end: sleep_s_max, input_bytes_max.
    assert name.endswith(UNITS) or name in WITHOUT_UNIT


def test_no_exception_to_the_rule_of_units_is_left_over() -> None:
    assert {item.name for item in fields(Settings)} >= WITHOUT_UNIT


def test_every_failpoint_is_reached_and_every_one_reached_is_known() -> None:
    reached = [
        str(argument.value)
        for path in MODULES
        for call in calls(tree(path))
        if isinstance(call.func, ast.Name) and call.func.id == "reach"
        for argument in call.args
        if isinstance(argument, ast.Constant)
    ]
    assert sorted(reached) == sorted(POINTS)
