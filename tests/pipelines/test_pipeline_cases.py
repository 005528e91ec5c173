"""Test cases that a pipeline carries, clones, and drafts that are deleted."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from typer.testing import CliRunner

from datp_tasks import Pipeline
from datp_tasks.cli import pipelines as cli
from datp_tasks.errors import PipelineInvalid, PipelineUnknown, VersionKept
from datp_tasks.model.pipeline import PipelineDefinition
from datp_tasks.testing import Kit
from datp_tasks.testing.case_runner import run_case
from datp_tasks.testing.servers import Servers

GOOD = {
    "name": "paid",
    "input": {"amount": "5"},
    "switches": {"approved": "yes"},
    "stubs": {"bank/pay": {"output": {"paid": "5", "at": 7, "more": {"x": 1, "y": 2}}}},
    "expect": {"output": {"paid": "5", "more": {"y": 2}}},
}


def pay(*cases: Any) -> PipelineDefinition:
    return (
        Pipeline("pay", tests=cases)
        .step("util/mandatory-fields", params={"fields": {"amount": {"type": "amount"}}})
        .step("util/wait", params={"switch": "approved", "failOn": "no"})
        .step("bank/pay", name="pay it")
        .build()
    )


def outcome(kit: Kit, case: dict[str, Any]) -> tuple[str, ...]:
    return run_case(kit, pay(case), [], case["name"]).mistakes


def test_a_case_runs_for_real_with_switches_and_stubs(datp: Kit) -> None:
    assert outcome(datp, GOOD) == ()
    by_name = GOOD | {"stubs": {"pay it": {"fail": "no money"}}}
    failing = by_name | {"expect": {"status": "failed", "note": "no money"}}
    assert outcome(datp, failing) == ()
    refused = GOOD | {"switches": {"approved": "no"}, "expect": {"status": "failed"}}
    assert outcome(datp, refused) == ()
    assert outcome(datp, GOOD | {"switches": {}, "expect": {"status": "sleeping"}}) == ()


@pytest.mark.parametrize(
    ("changes", "mistake"),
    [
        ({"input": {}}, "status is failed (amount is missing), not success"),
        ({"expect": {"output": {"paid": 5}}}, "output.paid is '5', not 5"),
        ({"expect": {"output": {"more": {"z": 1}}}}, "output.more.z is missing"),
        ({"expect": {"note": "late"}}, "which does not say 'late'"),
        ({"stubs": {}}, "the step type bank/pay is not known here: name the module"),
        ({"stubs": GOOD["stubs"] | {"bank/pya": {"output": {}}}}, "no step is called bank/pya"),  # type: ignore[operator]
    ],
)
def test_what_differs_is_named(datp: Kit, changes: dict[str, Any], mistake: str) -> None:
    assert mistake in outcome(datp, GOOD | changes)[0]


def test_a_case_runs_through_the_pipelines_that_its_own_calls(datp: Kit) -> None:
    child = Pipeline("child", startable=False).step("bank/pay").build()
    params = {"pipeline": "child"}
    case = {
        "name": "c",
        "stubs": {"bank/pay": {"output": {"ok": 1}}},
        "expect": {"output": {"ok": 1}},
    }
    parent = Pipeline("parent", tests=[case]).step("util/child-pipeline", params=params).build()
    assert run_case(datp, parent, [child], "c").mistakes == ()


@pytest.mark.parametrize(
    ("case", "mistake"),
    [
        ("x", "must be an object"),
        ({}, "name must be a text"),
        ({"name": "a", "inputs": {}}, "inputs is not a known key"),
        ({"name": "a", "expect": {"status": "done"}}, "expect.status must be one of"),
        ({"name": "a", "stubs": {"b": {"returns": 1}}}, "stubs.b must be"),
        ({"name": "a", "switches": {"b": None}}, "switches.b must be"),
        ({"name": "a", "expect": {"output": 1}}, "expect.output must be an object"),
    ],
)
def test_mistakes_in_cases_are_named_with_the_others(case: Any, mistake: str) -> None:
    with pytest.raises(PipelineInvalid, match=mistake):
        Pipeline("p", tests=[case] if isinstance(case, dict) else case).step("a/b").build()


def test_two_cases_of_one_name_are_refused() -> None:
    with pytest.raises(PipelineInvalid, match="stands twice"):
        pay(GOOD, GOOD)


def test_cases_go_with_the_version_also_to_another_installation(datp: Kit) -> None:
    store = datp.connections.pipelines
    applied = store.apply(pay(GOOD))
    document = store.export("pay", applied.version)
    assert [each.name for each in store.show("pay").definition.cases] == ["paid"]
    store.delete("pay", applied.version)
    with pytest.raises(PipelineUnknown):
        store.show("pay")
    assert store.import_(document).version == applied.version
    assert store.show("pay").definition.cases[0].output == {"paid": "5", "more": {"y": 2}}


@pytest.fixture
def invoke(datp: Kit, datp_servers: Servers, monkeypatch: pytest.MonkeyPatch) -> Any:
    """`datp pipelines …`; the servers of its test cases are a database beside this one."""
    connected = SimpleNamespace(
        steps_of_stack=None,
        settings=datp.settings, pipelines=datp.connections.pipelines,
        redis=datp.connections.redis, keys=datp.connections.live.keys,
    )  # fmt: skip
    monkeypatch.setattr(cli, "_connect", lambda: connected)
    monkeypatch.setenv("COLUMNS", "160")
    monkeypatch.setenv("DATP_TEST_REDIS_URL", datp_servers.redis_url)
    monkeypatch.setenv("DATP_TEST_DATABASE_URL", datp_servers.database_url)
    return lambda *words: CliRunner().invoke(cli.app, [str(each) for each in words])


def test_the_command_shows_what_passed_and_ends_with_1_if_a_case_failed(
    invoke: Any, datp: Kit, tmp_path: Path
) -> None:
    bad = GOOD | {"name": "bad", "expect": {"output": {"paid": "6"}}}
    datp.connections.pipelines.apply(pay(GOOD, bad))
    result = invoke("test", "pay")
    assert result.exit_code == 1
    assert "FAILED" in result.output
    assert "output.paid is '5', not '6'" in result.output
    assert "1 passed, 1 failed" in result.output
    assert invoke("test", "pay", "--case", "none").exception is not None
    assert datp.connections.record.count() == 0, "nothing ran in the installation"
    file = tmp_path / "pay.yaml"
    file.write_text(
        "pipeline: pay\nsteps: [{type: util/fixed-reply, params: {output: {a: 1}}}]\n"
        "tests: [{name: one, expect: {output: {a: 1}}}]\n"
    )
    passed = invoke("test", "pay", "--file", file)
    assert (passed.exit_code, "1 passed, 0 failed" in passed.output) == (0, True)


def test_a_clone_is_a_draft_under_another_name(invoke: Any, datp: Kit) -> None:
    store = datp.connections.pipelines
    applied = store.apply(pay(GOOD))
    store.use("pay", applied.version)
    assert "new draft" in invoke("clone", "pay", "pay-eu").output
    clone = store.show("pay-eu")
    assert (clone.info.state, clone.info.in_use) == ("draft", False)
    assert clone.definition.steps == store.show("pay").definition.steps
    assert isinstance(invoke("clone", "pay", "Not A Name").exception, PipelineInvalid)
    assert isinstance(invoke("clone", "none", "other").exception, PipelineUnknown)


def test_only_a_draft_that_was_never_in_use_is_deleted(invoke: Any, datp: Kit) -> None:
    store = datp.connections.pipelines
    used, committed, draft = (
        store.apply(Pipeline("p", description=each).step("a/b").build()).version
        for each in ("used", "committed", "draft")
    )
    store.use("p", used)
    store.commit("p", committed, "good")
    store.use("p", committed)
    for kept, why in ((used, "was in use"), (committed, "was in use")):
        refused = invoke("delete", "p", kept).exception
        assert isinstance(refused, VersionKept)
        assert why in str(refused)
    other = store.apply(Pipeline("p", description="c2").step("a/b").build()).version
    store.commit("p", other, "good")
    assert "committed" in str(invoke("delete", "p", other).exception)
    assert "deleted" in invoke("delete", "p", draft).output
    assert {each.version for each in store.versions("p")} == {used, committed, other}
