"""What a newcomer meets in the first hour: waits, steps that are missing, new groups."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import typer
from typer.testing import CliRunner, Result

from datp_tasks import Pipeline
from datp_tasks.cli import pipelines, transactions
from datp_tasks.cli.group_watch import GroupWatch, Needs, node_groups
from datp_tasks.cli.own_steps import import_steps
from datp_tasks.errors import PipelineInvalid, StepTypeInvalid
from datp_tasks.model.actor import LOCAL
from datp_tasks.testing import Kit
from tests.support.command_parts import command_parts
from tests.support.eventually import eventually

ORDER = """
pipeline: order
nodeGroup: shop
steps:
  - type: util/fixed-reply
    params: {output: {cups: 2}}
"""


@pytest.fixture
def in_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    return tmp_path


@pytest.fixture
def submit(datp: Kit, monkeypatch: pytest.MonkeyPatch) -> Any:
    context = SimpleNamespace(client=datp.client, operator=datp.operator, actor=LOCAL)
    monkeypatch.setattr(transactions, "connect", lambda: context)
    monkeypatch.setattr(transactions, "EXPLAIN_EVERY_S", 0.05)
    app = typer.Typer()
    transactions.add_commands(app)

    def submit(*words: str) -> Result:
        return CliRunner().invoke(app, ["submit", *words], catch_exceptions=False)

    return submit


def test_a_wait_says_what_it_is_for_once(datp: Kit, submit: Any) -> None:
    datp.use(Pipeline("ask").step("util/wait", params={"switch": "go", "seconds": 900}).build())
    result = submit("ask", "--wait", "--timeout-s", "0.5")
    assert result.exit_code == transactions.NOT_ENDED
    lines = result.stderr.splitlines()
    assert lines[0] == "waiting: It waits at step 1 of ask (util/wait) for switch 'go' to be set."
    assert lines[1].startswith("  → datp switch t")
    assert lines[2].split(" ", 1)[1].startswith("is still sleeping after 0.5 s; `datp watch t")
    assert len(lines) == 3
    assert result.stdout == ""


def test_a_wait_says_it_again_when_the_reason_changes(
    datp: Kit, submit: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    datp.use(Pipeline("ask").step("util/wait", params={"switch": "go", "seconds": 900}).build())
    answers = ["It waits since 1 s.", "It waits since 2 s.", "It runs.", "It runs."]
    asked = iter(answers)

    def why(tx_id: str, **_: Any) -> Any:
        answer = next(asked, None)
        if answer is None:
            datp.client.set_switch(tx_id, "go", True)
            answer = "It runs."
        return SimpleNamespace(answer=answer, hints=[])

    monkeypatch.setattr(datp.operator, "why", why)
    result = submit("ask", "--wait", "--timeout-s", "30")
    assert result.exit_code == 0
    assert result.stderr.splitlines() == ["waiting: It waits since 1 s.", "waiting: It runs."]


def test_a_quiet_wait_says_nothing(datp: Kit, submit: Any) -> None:
    datp.use(Pipeline("ask").step("util/wait", params={"switch": "go", "seconds": 900}).build())
    result = submit("ask", "--wait", "--quiet", "--timeout-s", "0.3")
    assert result.exit_code == transactions.NOT_ENDED
    assert "waiting" not in result.output


def test_a_steps_module_that_is_not_there_is_a_sentence(in_folder: Path) -> None:
    with pytest.raises(StepTypeInvalid) as caught:
        import_steps(["no_such_steps"])
    assert str(caught.value).startswith("DATP_STEPS names the module 'no_such_steps', which cannot")
    assert f"looked for in {in_folder}" in str(caught.value)


def test_steps_of_a_running_stack_that_are_not_here_keep_no_pipeline_from_being_applied(
    datp: Kit, in_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (in_folder / "order.yaml").write_text(ORDER)
    (in_folder / "halfway_steps.py").write_text("1 / 0\n")
    settings = replace(datp.settings, steps=("no_such_steps", "halfway_steps"))
    of_stack = in_folder / ".datp"

    def run(*words: str, **parts: Any) -> Result:
        parts |= {"pipelines": datp.connections.pipelines, "offered_step_types": lambda: None}
        context = command_parts(datp, settings=settings, **parts)
        monkeypatch.setattr(pipelines, "_connect", lambda: context)
        return CliRunner().invoke(pipelines.app, list(words))

    refused = run("apply", "order.yaml")
    assert isinstance(refused.exception, StepTypeInvalid), "DATP_STEPS is the word of this user"
    applied = run("apply", "order.yaml", steps_of_stack=of_stack)
    assert (applied.exit_code, "order" in applied.stdout) == (0, True), applied.output
    for words in ("'no_such_steps'", "'halfway_steps'", f"`datp up` that runs in {of_stack}"):
        assert words in applied.stderr
    tested = run("test", "order", steps_of_stack=of_stack)
    assert f"the `datp up` that runs in {of_stack}" in str(tested.exception)


@pytest.mark.parametrize(
    ("source", "reason"),
    [
        ("x = (", "SyntaxError: '(' was never closed"),
        ("import no_such_library", "ModuleNotFoundError: No module named 'no_such_library'"),
        ("1 / 0", "ZeroDivisionError: division by zero"),
    ],
)
def test_a_steps_module_that_breaks_is_a_sentence(
    in_folder: Path, source: str, reason: str
) -> None:
    (in_folder / "broken_steps.py").write_text(source + "\n")
    with pytest.raises(StepTypeInvalid) as caught:
        import_steps(["broken_steps"])
    start = "DATP_STEPS names the module 'broken_steps', whose import fails: "
    assert str(caught.value).startswith(start + reason)


def test_the_kit_uses_a_file_or_a_folder(datp: Kit, in_folder: Path) -> None:
    (in_folder / "order.yaml").write_text(ORDER)
    datp.use("order.yaml")
    assert datp.run("order", {}).output == {"cups": 2}
    (in_folder / "more").mkdir()
    (in_folder / "more" / "other.yaml").write_text(ORDER.replace("order", "other"))
    third = Pipeline("third").step("util/delay", params={"seconds": 1}).build()
    datp.use(in_folder / "more", third)
    assert datp.run("other", {}).output == {"cups": 2}


def test_the_kit_looks_for_files_beside_the_test_first(datp: Kit, in_folder: Path) -> None:
    assert datp.folders == (Path(__file__).parent, Path())
    beside = in_folder / "beside"
    beside.mkdir()
    (beside / "order.yaml").write_text(ORDER.replace("2", "7"))
    (in_folder / "order.yaml").write_text(ORDER)
    datp.folders = (beside, Path())
    datp.use("order.yaml")
    assert datp.run("order", {}).output == {"cups": 7}


def test_a_file_that_is_not_there_is_named(datp: Kit, in_folder: Path) -> None:
    with pytest.raises(PipelineInvalid, match=r"ordre\.yaml"):
        datp.use("ordre.yaml")


class FakeStack:
    """Notes the groups for which workers are asked."""

    def __init__(self, kit: Kit) -> None:
        self.asked: list[list[str]] = []
        settings = kit.settings
        variables = {
            "DATP_REDIS_URL": settings.redis_url,
            "DATP_DATABASE_URL": settings.database_url,
            "DATP_BROKER_URL": settings.broker_url,
            "DATP_KEY_PREFIX": settings.key_prefix,
            "DATP_REDIS_CLUSTER": settings.redis_cluster,
        }
        self.urls = SimpleNamespace(as_environment=lambda: variables)

    def add_workers(self, groups: list[str]) -> None:
        self.asked.append(groups)


@pytest.fixture
def fake_stack(datp: Kit, monkeypatch: pytest.MonkeyPatch) -> FakeStack:
    monkeypatch.setattr("datp_tasks.cli.group_watch.LOOK_EVERY_S", 0.02)
    return FakeStack(datp)


def test_a_group_that_a_pipeline_brings_along_is_found_while_it_runs(
    datp: Kit, fake_stack: FakeStack, in_folder: Path
) -> None:
    said: list[str] = []
    found = node_groups(
        datp.connections.pipelines, datp.connections.catalogue, "master", datp.steps.names()
    )
    assert found == Needs(["master"], {})
    stack: Any = fake_stack
    with GroupWatch(stack, datp.steps.names(), said.append) as watch:
        (in_folder / "order.yaml").write_text(ORDER)
        datp.use("order.yaml")

        def is_found() -> bool:
            watch.look()
            return fake_stack.asked[-1] == ["master", "shop"]

        eventually(is_found)
    assert said == []


def test_a_group_whose_steps_are_not_known_here_gets_no_worker_and_that_is_said_once(
    datp: Kit, fake_stack: FakeStack, in_folder: Path
) -> None:
    """Its worker would take bells from one that has the steps."""
    said: list[str] = []
    known = [name for name in datp.steps.names() if name != "util/fixed-reply"]
    (in_folder / "order.yaml").write_text(ORDER)
    datp.use("order.yaml")
    stack: Any = fake_stack
    with GroupWatch(stack, known, said.append) as watch:

        def is_said() -> bool:
            watch.look()
            return bool(said)

        eventually(is_said)
        watch.look()
    assert fake_stack.asked[-1] == ["master"]
    assert said == [
        "node group shop gets no worker here: DATP_STEPS names no module with util/fixed-reply"
    ]


def test_the_old_name_of_the_input_is_read_with_a_warning(datp: Kit, submit: Any) -> None:
    datp.use(Pipeline("keep").step("util/delay", params={"seconds": 1}).build())
    new = submit("keep", "--input", '{"cups": 2}', "--json")
    old = submit("keep", "--data", '{"cups": 2}', "--json")
    assert (new.exit_code, old.exit_code) == (0, 0)
    assert (new.stderr, old.stderr) == ("", f"{transactions.OLD_DATA}\n")
    assert [json.loads(each.stdout)["input"] for each in (new, old)] == [{"cups": 2}] * 2
