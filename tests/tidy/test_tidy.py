"""House rules that a machine can hold."""

from __future__ import annotations

import ast
import re
from dataclasses import fields
from functools import cache
from itertools import pairwise
from pathlib import Path

import pytest

import datp_tasks
from datp_tasks.failpoints import POINTS
from datp_tasks.jobs import schedule
from datp_tasks.runtime import jobs
from datp_tasks.settings import Settings
from datp_tasks.tuning import Tuning
from tests.support.parsed import parsed

PACKAGE = Path(datp_tasks.__file__).parent
MODULES = sorted(PACKAGE.rglob("*.py"))
SOURCES = [*MODULES, *sorted(PACKAGE.rglob("*.lua"))]
#: The largest module stays below this.
MODULE_LINES_LIMIT = 400
FUNCTION_LINES_MAX = 70
PARAMETERS_MAX = 6
#: Beside the jobs in `jobs/`.
NOT_JOBS = {"__init__", "schedule", "rebuild"}

#: A limit says what it counts before its end: sleep_s_max, input_bytes_max.
UNITS = ("_s", "_ms", "_days", "_max")
#: Counts that need no unit.
WITHOUT_UNIT = {"shards", "sql_pool_size", "webhook_workers"}
NUMBERS = [item.name for item in fields(Settings) if isinstance(item.default, int | float)]

#: The list in `tuning.py` may only shrink: a number belongs beside its use.
CONSTANTS_MAX = 40

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
#: The age of a webhook is judged by the clock of its receiver.
MAY_LOOK_AT_THE_WALL_CLOCK = ("clock.py", "local/", "cli/", "http/webhook_check.py")


def shown(path: Path, node: ast.AST | None = None) -> str:
    name = path.relative_to(PACKAGE).as_posix()
    return name if node is None else f"{name}:{getattr(node, 'lineno', 0)}"


@cache
def tree(path: Path) -> ast.Module:
    return parsed(path.read_text())


@cache
def calls(path: Path) -> list[ast.Call]:
    return [node for node in ast.walk(tree(path)) if isinstance(node, ast.Call)]


def imported(path: Path) -> set[str]:
    """Modules, also where only a name of a package is imported."""
    return {
        name
        for node in ast.walk(tree(path))
        for name in (
            [alias.name for alias in node.names]
            if isinstance(node, ast.Import)
            else [node.module or "", *(f"{node.module}.{alias.name}" for alias in node.names)]
            if isinstance(node, ast.ImportFrom)
            else []
        )
    }


def parameters(function: ast.FunctionDef) -> list[ast.arg]:
    given = function.args
    found = [*given.posonlyargs, *given.args, *given.kwonlyargs]
    return [each for each in found if each.arg not in ("self", "cls")]


each_job = pytest.mark.parametrize(
    "path",
    [path for path in sorted((PACKAGE / "jobs").glob("*.py")) if path.stem not in NOT_JOBS],
    ids=lambda path: str(path.stem),
)


def test_there_is_something_to_look_at() -> None:
    assert len(MODULES) > 50


def test_modules_are_short_and_say_what_they_are_for() -> None:
    long = [shown(path) for path in MODULES if path.read_text().count("\n") >= MODULE_LINES_LIMIT]
    silent = [shown(path) for path in MODULES if not ast.get_docstring(tree(path))]
    assert (long, silent) == ([], [])


def test_functions_are_short() -> None:
    long = [
        f"{shown(path, node)} {node.name}"
        for path in MODULES
        for node in ast.walk(tree(path))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and (node.end_lineno or 0) - node.lineno + 1 > FUNCTION_LINES_MAX
    ]
    assert long == []


def test_nothing_is_printed() -> None:
    printing = [
        shown(path, call)
        for path in MODULES
        for call in calls(path)
        if isinstance(call.func, ast.Name) and call.func.id == "print"
    ]
    assert printing == []


def test_nothing_is_left_to_do() -> None:
    marks = re.compile(r"\b(TODO|FIXME|XXX|HACK)\b")
    assert [shown(path) for path in SOURCES if marks.search(path.read_text())] == []


def test_only_scripts_talk_to_redis_in_lua() -> None:
    lua = [shown(path) for path in MODULES if "redis.call" in path.read_text()]
    evals = [
        shown(path, call)
        for path in MODULES
        for call in calls(path)
        if isinstance(call.func, ast.Attribute)
        and call.func.attr in ("eval", "evalsha")
        and shown(path) != "live/scripts.py"
    ]
    assert (lua, evals) == ([], [])


def test_no_wall_clock_decides_anything() -> None:
    looks = [
        shown(path, call)
        for path in MODULES
        if not shown(path).startswith(MAY_LOOK_AT_THE_WALL_CLOCK)
        for call in calls(path)
        if _name(call.func) in WALL_CLOCKS
    ]
    assert looks == []


def _name(function: ast.expr) -> tuple[str, str]:
    """The last two parts of a dotted name."""
    if not isinstance(function, ast.Attribute):
        return "", ""
    owner = function.value
    return owner.attr if isinstance(owner, ast.Attribute) else getattr(owner, "id", ""), (
        function.attr
    )


@each_job
def test_a_job_is_scheduled_and_has_the_shape_of_a_job(path: Path) -> None:
    assert path.stem in schedule.JOBS
    module = tree(path)
    docstring = ast.get_docstring(module) or ""
    for part in ("Moves", "Knows", "Bound", "Overlap", "Crash"):
        assert re.search(rf"^{part}: {{1,6}}\S", docstring, re.MULTILINE), part
    functions = {node.name: node for node in module.body if isinstance(node, ast.FunctionDef)}
    assert "Result" in {node.name for node in module.body if isinstance(node, ast.ClassDef)}
    answer = functions["run_once"].returns
    assert isinstance(answer, ast.Name)
    assert answer.id == "Result"


@each_job
def test_a_job_gets_what_it_needs_and_never_everything(path: Path) -> None:
    """No module of it knows the place that wires, and `run_once` names each thing it uses."""
    assert not {name for name in imported(path) if name.startswith("datp_tasks.runtime")}
    run_once = next(
        node
        for node in tree(path).body
        if isinstance(node, ast.FunctionDef) and node.name == "run_once"
    )
    assert run_once.args.args
    assert run_once.args.vararg is run_once.args.kwarg is None
    assert len(parameters(run_once)) <= PARAMETERS_MAX
    types = {ast.unparse(each.annotation) for each in parameters(run_once) if each.annotation}
    # Settings are everything, too: limits come one by one, or as the job's own `Limits`.
    assert not types & {"Container", "Settings", "Any", "object"}


def test_functions_of_the_runtime_and_of_the_jobs_are_given_few_things() -> None:
    many = [
        f"{shown(path, node)} {node.name}"
        for path in [*(PACKAGE / "runtime").glob("*.py"), *(PACKAGE / "jobs").glob("*.py")]
        for node in ast.walk(tree(path))
        if isinstance(node, ast.FunctionDef)
        if len(parameters(node)) > PARAMETERS_MAX
    ]
    assert many == []


@each_job
def test_a_job_has_no_celery_no_sql_and_no_script_of_its_own(path: Path) -> None:
    packages = {name.split(".")[0] for name in imported(path)}
    assert not packages & {"celery", "kombu", "sqlalchemy", "psycopg2"}


def test_every_scheduled_job_has_its_module_and_its_period() -> None:
    settings = Settings()
    assert jobs.JOBS.keys() == schedule.JOBS.keys()
    for job in schedule.JOBS:
        assert (PACKAGE / "jobs" / f"{job}.py").exists()
        assert schedule.period_s(settings, job) > 0
    entries = schedule.beat_schedule(settings)
    assert {entry["task"] for entry in entries.values()} == {
        f"datp.maintenance.{job}" for job in schedule.JOBS
    }


def test_a_setting_that_is_a_number_has_its_unit_in_its_name() -> None:
    assert {name for name in NUMBERS if not name.endswith(UNITS)} == WITHOUT_UNIT


def test_every_constant_has_its_reason_above_it() -> None:
    lines = (PACKAGE / "tuning.py").read_text().splitlines()
    bare = [
        line.split(":")[0].strip()
        for before, line in pairwise(lines)
        if re.match(r"    \w+: (int|float|str|tuple\[str, \.\.\.\]) = ", line)
        if not re.match(r"    #: .+[^:]$", before)
    ]
    assert bare == []


def test_a_constant_that_one_module_reads_stands_beside_its_use() -> None:
    """In `tuning.py` is what several modules read, or what tests and benchmarks change."""
    constants = [each for each in fields(Tuning) if not each.metadata.get("group_value")]
    assert len(constants) <= CONSTANTS_MAX
    root = PACKAGE.parent
    names = re.findall(r"^    (\w+): ", (PACKAGE / "tuning.py").read_text(), re.MULTILINE)
    modules = [set(re.findall(r"\w+", path.read_text())) for path in MODULES]
    changed = {
        word
        for top in ("tests", "benchmarks")
        for path in (root / top).rglob("*.py")
        if path != Path(__file__)
        for word in re.findall(r"\w+", path.read_text())
    }
    # Itself, and one more.
    alone = {
        name
        for name in names
        if name not in changed and sum(name in words for words in modules) <= 2
        # The table of jobs in `jobs/schedule.py` looks periods up by the name of the job.
        if not name.endswith("_period_s")
    }
    assert alone == set()


def test_every_failpoint_is_reached_and_every_one_reached_is_known() -> None:
    reached = [
        str(argument.value)
        for path in MODULES
        for call in calls(path)
        if isinstance(call.func, ast.Name) and call.func.id == "reach"
        for argument in call.args
        if isinstance(argument, ast.Constant)
    ]
    assert sorted(reached) == sorted(POINTS)
