"""The tables on the reference pages say what the code says, all of it and nothing else."""

from __future__ import annotations

import inspect
import re
from dataclasses import MISSING, fields
from typing import Any

import pytest

from datp_tasks.engine.builtin.field_types import TYPES
from datp_tasks.engine.context import StepContext
from datp_tasks.engine.registry import Registry, discover, registry
from datp_tasks.model import pipeline_rules as rules
from datp_tasks.model.backoff import RetryPolicy
from datp_tasks.model.pipeline import Pipeline, PipelineDefinition, StepDefinition
from datp_tasks.model.pipeline_access import DEFAULT_ACCESS
from datp_tasks.settings import BASIC, GROUP_NAME, published, variable
from tests.docs.docs_blocks import pages

CELLS = re.compile(r"(?<!\\)\|")


def table(page: str, first_column: str) -> list[list[str]]:
    """The rows of the table whose first column is called like this."""
    lines = pages()[page].split("\n")
    start = next(n for n, line in enumerate(lines) if line.startswith(f"| {first_column} |"))
    return rows_from(lines, start)


def rows_from(lines: list[str], start: int) -> list[list[str]]:
    found = []
    for line in lines[start + 2 :]:
        if not line.startswith("|"):
            break
        found.append([cell.strip() for cell in CELLS.split(line)[1:-1]])
    return found


def section(title: str) -> dict[str, list[str]]:
    """The table of fields below a heading of the page about pipelines, by field."""
    lines = pages()["docs/pipelines.md"].split("\n")
    heading = lines.index(f"## {title}")
    start = next(n for n in range(heading, len(lines)) if lines[n].startswith("| field |"))
    return {row[0].strip("`"): row[1:] for row in rows_from(lines, start)}


def shown_default(value: object) -> str:
    known: dict[object, str] = {None: "none", "": '`""`', True: "`true`", False: "`false`"}
    return "`{}`" if value in ({}, DEFAULT_ACCESS) else known.get(value, f"`{value}`")


def default_of(item: Any) -> object:
    return item.default if item.default is not MISSING else item.default_factory()


#: Names in the classes that differ from those in files.
IN_FILES = {
    "name": "pipeline",
    "node_group": "nodeGroup",
    "on_error": "onError",
    "expires_in_s": "expiresInSeconds",
    "input_schema": "inputSchema",
    "on_late": "onLate",
    "long_running_s": "longRunningSeconds",
    "timeout_s": "timeoutSeconds",
    "final_from": "finalFrom",
}
#: Defaults that are not a value but come from somewhere else.
FROM_ELSEWHERE = {
    "nodeGroup": "that of the pipeline",
    "dispatch": "that of the pipeline",
    "timeoutSeconds": "that of the step type",
    "retry": "that of the step type",
}


@pytest.mark.parametrize(
    ("title", "known", "of_class", "builder", "required"),
    [
        (
            "Fields of a pipeline",
            {*rules.PIPELINE_RULES, "steps"},
            PipelineDefinition,
            Pipeline.__init__,
            {"pipeline", "steps"},
        ),
        ("Fields of a step", {*rules.STEP_RULES}, StepDefinition, Pipeline.step, {"type"}),
    ],
)
def test_every_field_is_there_with_its_default(
    title: str, known: set[str], of_class: Any, builder: Any, required: set[str]
) -> None:
    shown = section(title)
    assert shown.keys() == known
    is_step = of_class is StepDefinition
    for item in fields(of_class):
        if not item.init:
            continue
        field = item.name if is_step and item.name == "name" else IN_FILES.get(item.name, item.name)
        default = shown[field][2]
        if field in required:
            assert default == "required", field
        elif is_step and field in FROM_ELSEWHERE:
            assert (default, item.default) == (FROM_ELSEWHERE[field], None), field
        else:
            assert default == shown_default(default_of(item)), field
    in_python = {row[0].strip("`") for row in shown.values()} - {".step(…)"}
    assert in_python == set(inspect.signature(builder).parameters) - {"self"}


def test_the_limits_of_fields_are_those_of_the_rules() -> None:
    pipeline, step = section("Fields of a pipeline"), section("Fields of a step")
    for text, limit in (
        (pipeline["pipeline"][-1], rules.PIPELINE_NAME.pattern),
        (pipeline["description"][-1], rules.DESCRIPTION_CHARS_MAX),
        (pipeline["nodeGroup"][-1], GROUP_NAME.pattern),
        (pipeline["expiresInSeconds"][-1], rules.EXPIRES_S_MAX),
        (pipeline["longRunningSeconds"][-1], rules.LONG_RUNNING_S_MAX),
        (pipeline["onLate"][-1], rules.NAME_CHARS_MAX),
        (pipeline["steps"][-1], f"1 to {rules.STEPS_MAX} "),
        (pipeline["onError"][1], " or ".join(f"`{each}`" for each in rules.ON_ERRORS)),
        (pages()["docs/pipelines.md"], f"at most {rules.DEFINITION_BYTES_MAX} bytes"),
        (step["type"][-1], rules.NAME_CHARS_MAX),
        (step["name"][-1], rules.NAME_CHARS_MAX),
        (step["description"][-1], rules.DESCRIPTION_CHARS_MAX),
        (step["nodeGroup"][-1], GROUP_NAME.pattern),
        (step["dispatch"][1], " or ".join(f"`{each}`" for each in rules.DISPATCHES)),
        (step["params"][-1], rules.PARAMS_BYTES_MAX),
        (step["params"][-1], f"{rules.PARAMS_DEPTH_MAX} levels"),
        (step["timeoutSeconds"][-1], rules.TIMEOUT_S_MAX),
        (step["retry"][-1], rules.RETRY_NUMBER_MAX),
    ):
        assert str(limit) in text, limit


def test_retry_policies_are_shown_with_their_defaults() -> None:
    shown = {
        row[0].strip("`"): float(row[1]) for row in table("docs/pipelines.md", "field of `retry`")
    }
    assert shown == {item.name: item.default for item in fields(RetryPolicy)}


def test_the_step_types_that_come_along_are_listed_with_their_params() -> None:
    discover(())
    shown = {row[0].strip("`"): row[2] for row in table("docs/pipelines.md", "step type")}
    shipped = [
        name
        for name in registry.names()
        if registry.get(name).function.__module__.startswith("datp_tasks.engine.builtin")
    ]
    assert sorted(shown) == shipped
    for name, params in shown.items():
        check = registry.get(name).check_function
        assert check is not None
        named = re.findall(r"`(\w+)`", params)
        unknown = [each for each in check(dict.fromkeys(named)) if "is unknown" in each]
        allowed = {
            "ignore",
            "warning",
            "error",
            "delaySeconds",
            "literal",
            "from",
            "default",
            "template",
        }
        assert [each for each in unknown if each.split()[0] not in allowed] == [], name
        # Which params there are is only known to the check: it names them when it meets a stranger.
        stranger = next(each for each in check({"zzzzzz": 1}) if each.startswith("zzzzzz"))
        if "known are " in stranger:
            assert set(stranger.split("known are ")[1].split(", ")) <= set(named), name


def test_field_types_are_listed() -> None:
    text = pages()["docs/pipelines.md"].split("Field types of")[1].split(";")[0]
    assert set(re.findall(r"`(\w+)`", text)) == set(TYPES)


def test_everything_that_a_step_is_given_is_listed() -> None:
    shown = {
        re.sub(r"\W.*", "", row[0].removeprefix("`ctx.")) for row in table("docs/steps.md", "name")
    }
    public = {name for name in dir(StepContext) if not name.startswith("_")}
    assert shown == public


def test_the_options_of_a_step_type_are_listed() -> None:
    shown = [row[0].strip("`") for row in table("docs/steps.md", "option of `@step`")]
    assert shown == [name for name in inspect.signature(Registry.step).parameters if name != "self"]


def allowed_values(item: Any) -> str:
    limits = item.metadata
    if "low" in limits:
        return f"{limits['low']} to {limits['high']}"
    if "pattern" in limits:
        return f"`{limits['pattern']}`".replace("|", "\\|")
    if "schemes" in limits:
        return ", ".join(f"`{scheme}://`" for scheme in limits["schemes"])
    return "comma-separated" if isinstance(item.default, tuple) else "text"


def default_value(item: Any) -> str:
    value = item.default
    if isinstance(value, tuple):
        value = ",".join(value)
    if isinstance(value, float):
        value = int(value) if value == int(value) else value
    return f"`{value}`" if value != "" else "none"


def settings_listed() -> dict[str, list[list[str]]]:
    """The tables of the page, by the heading above each."""
    lines = pages()["docs/settings.md"].split("\n")
    heads = [n for n, line in enumerate(lines) if line.startswith("| variable |")]
    return {
        next(line for line in reversed(lines[:head]) if line.startswith("#")): rows_from(
            lines, head
        )
        for head in heads
    }


def test_every_published_setting_is_listed_with_its_default_and_limits() -> None:
    shown = [row for rows in settings_listed().values() for row in rows]
    expected = [
        [f"`{variable(item.name)}`", default_value(item), allowed_values(item), f"`{item.name}`"]
        for item in published()
    ]
    assert [[*row[:3], row[4]] for row in shown] == expected
    assert [row[0] for row in shown if not row[3]] == []


def test_settings_are_listed_by_tier_and_topic() -> None:
    listed = settings_listed()
    first, *topics = listed
    assert first == "## What a deployment sets"
    assert {row[4].strip("`") for row in listed[first]} == BASIC
    names = [{row[0].strip("`").partition("__")[0] for row in listed[topic]} for topic in topics]
    assert all(len(each) == 1 for each in names), "one topic in one table"
    assert len(set.union(*names)) == len(topics), "one table for one topic"


def test_few_settings_are_published() -> None:
    assert len(BASIC) <= 13
    assert len(published()) - len(BASIC) <= 40


#: Of clients, of the examples on the pages, of docker-compose.yml and of tests.
OTHER_VARIABLES = {
    *("DATP_URL", "DATP_KEY", "DATP_ACTOR"),
    *("DATP_OPERATOR_KEY", "DATP_APPROVER_KEY", "DATP_ADMIN_KEY"),
    *("DATP_POSTGRES_PASSWORD", "DATP_REDIS_PASSWORD", "DATP_REDIS_MAXMEMORY"),
    *("DATP_FAILPOINTS", "DATP_STEER_FILE", "DATP_TUNING"),
    *("DATP_TEST_REDIS_URL", "DATP_TEST_DATABASE_URL", "DATP_TEST_RABBITMQ_URL"),
}


@pytest.mark.parametrize("page", sorted(pages()))
def test_no_page_names_a_variable_that_is_not_published(page: str) -> None:
    text = pages()[page].partition("## Old names")[0]
    named = set(re.findall(r"\bDATP_[A-Z]\w*", text))
    assert named - {variable(item.name) for item in published()} - OTHER_VARIABLES == set()


def test_every_promise_names_a_test() -> None:
    text = pages()["docs/guarantees.md"].split("## What is promised")[1].split("## What is not")[0]
    promises = [
        line
        for line in text.split("\n")
        if line.startswith("| ") and not line.startswith("| promise")
    ]
    assert len(promises) > 30
    assert [
        line for line in promises if not re.search(r"`tests/\S+\.py::test_\w+` \|$", line)
    ] == []
