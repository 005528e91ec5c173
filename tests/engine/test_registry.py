"""Declaring step types, and finding them by name, by module and by entry point."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from datp_tasks.engine.registry import Registry, discover, registry
from datp_tasks.errors import StepTypeInvalid, StepTypeUnknown
from datp_tasks.model.backoff import RetryPolicy


def nothing(ctx: Any, data: Any) -> None:
    """Does nothing."""


@pytest.fixture
def modules(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder that Python imports from; what was declared there is forgotten afterwards."""
    monkeypatch.syspath_prepend(str(tmp_path))
    types, loaded = dict(registry._types), set(sys.modules)
    yield tmp_path
    registry._types.clear()
    registry._types.update(types)
    for name in set(sys.modules) - loaded:
        del sys.modules[name]


@pytest.mark.parametrize("name", ["", "Bank/reserve", "bank/", "/bank", "bank//x", "a b", "bänk"])
def test_a_name_must_look_like_a_step_type(name: str) -> None:
    with pytest.raises(StepTypeInvalid, match="must look like 'bank/reserve'"):
        Registry().step(name)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"on_crash": "ignore"}, "on_crash must be rerun, probe or review, was 'ignore'"),
        ({"timeout_s": 0}, "timeout_s must be above 0, was 0"),
        ({"timeout_s": -1}, "timeout_s must be above 0, was -1"),
        ({"timeout_s": float("nan")}, "timeout_s must be above 0, was nan"),
        ({"retry": {"max_attempts": 0}}, "retry.max_attempts must be 1 or more, was 0"),
        ({"retry": {"atempts": 3}}, "retry.atempts is unknown"),
    ],
)
def test_a_wrong_declaration_is_named_with_its_step(options: Any, message: str) -> None:
    with pytest.raises(StepTypeInvalid) as refused:
        Registry().step("bank/reserve", **options)
    assert str(refused.value).startswith(f"bank/reserve: {message}")


def test_a_transactional_step_cannot_be_async() -> None:
    async def reserve(ctx: Any, data: Any) -> None: ...

    with pytest.raises(StepTypeInvalid, match="a transactional step cannot be async"):
        Registry().step("bank/reserve", transactional=True)(reserve)


def test_a_declaration_keeps_what_it_was_given() -> None:
    steps = Registry()
    declared = steps.step(
        "bank/reserve", retry={"max_attempts": 5}, timeout_s=3, on_crash="review"
    )(nothing)
    assert steps.get("bank/reserve") is declared
    assert declared.task_name == "datp.step.bank/reserve"
    assert declared.description == "Does nothing."
    assert (declared.retry, declared.timeout_s) == (RetryPolicy(max_attempts=5), 3)
    assert declared.on_crash == "review"


def test_calling_a_step_type_calls_the_plain_function() -> None:
    @Registry().step("t/double")
    def double(ctx: Any, data: dict[str, int]) -> dict[str, int]:
        return {"n": 2 * data["n"]}

    assert double(None, {"n": 4}) == {"n": 8}


def test_two_functions_cannot_declare_the_same_step_type() -> None:
    steps = Registry()
    steps.step("bank/reserve")(nothing)

    def other(ctx: Any, data: Any) -> None: ...

    with pytest.raises(StepTypeInvalid, match="'bank/reserve' is declared twice") as refused:
        steps.step("bank/reserve")(other)
    assert str(refused.value).count(__name__) == 2
    assert steps.get("bank/reserve").function is nothing


def test_two_functions_of_one_name_in_one_file_are_two_as_well(modules: Path) -> None:
    source = "from datp_tasks import step\n" + (
        "@step('twice/reserve')\ndef reserve(ctx, data): ...\n" * 2
    )
    (modules / "twice_steps.py").write_text(source)
    with pytest.raises(StepTypeInvalid, match="'twice/reserve' is declared twice"):
        discover(["twice_steps"])


def test_importing_a_module_again_is_no_second_declaration(modules: Path) -> None:
    source = "from datp_tasks import step\n@step('again/reserve')\ndef reserve(ctx, data): ...\n"
    (modules / "again_steps.py").write_text(source)
    discover(["again_steps"])
    first = registry.get("again/reserve")
    del sys.modules["again_steps"]
    discover(["again_steps"])
    assert registry.get("again/reserve") is not first


def test_a_step_type_that_is_not_here_is_named_with_what_to_do() -> None:
    with pytest.raises(StepTypeUnknown, match=r"'bank/gone'.*add the module.*to DATP_STEPS"):
        Registry().get("bank/gone")
    assert Registry().find("bank/gone") is None


def test_a_listener_hears_of_steps_before_and_after_it_came() -> None:
    steps, heard = Registry(), list[str]()
    steps.step("t/first")(nothing)
    steps.listen(lambda step_type: heard.append(step_type.name))
    steps.step("t/second")(nothing)
    assert heard == steps.names() == ["t/first", "t/second"]


def test_a_copy_has_the_same_steps_and_keeps_new_ones_to_itself() -> None:
    steps = Registry()
    steps.step("t/first")(nothing)
    copy = steps.copy()
    copy.step("t/second")(nothing)
    assert copy.names() == ["t/first", "t/second"]
    assert steps.names() == ["t/first"]


def test_the_shipped_steps_are_always_discovered() -> None:
    discover(())
    assert {"util/delay", "util/wait", "http/request"} <= set(registry.names())


def test_steps_are_discovered_in_the_modules_that_datp_steps_names(modules: Path) -> None:
    (modules / "acme").mkdir()
    (modules / "acme" / "steps.py").write_text(
        "from datp_tasks import step\n@step('acme/hello')\ndef hello(ctx, data): ...\n"
    )
    discover(["acme.steps"])
    assert registry.get("acme/hello").function.__module__ == "acme.steps"


@pytest.mark.parametrize("module", ["no_such_module", "no_such_package.steps"])
def test_a_module_that_is_not_there_is_named(module: str) -> None:
    with pytest.raises(StepTypeInvalid) as refused:
        discover([module])
    assert str(refused.value).startswith(
        f"DATP_STEPS names the module {module!r}, which cannot be imported: No module named "
    )


def test_a_module_that_misses_something_else_is_not_blamed_itself(modules: Path) -> None:
    (modules / "needs_more.py").write_text("import surely_not_installed\n")
    with pytest.raises(ModuleNotFoundError, match="surely_not_installed"):
        discover(["needs_more"])


def test_steps_of_an_installed_package_are_found_by_their_entry_point(modules: Path) -> None:
    (modules / "plugged.py").write_text(
        "from datp_tasks import step\n@step('plugged/hello')\ndef hello(ctx, data): ...\n"
    )
    info = modules / "plugged-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: plugged\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[datp_tasks.steps]\nplugged = plugged\n")
    discover(())
    assert registry.find("plugged/hello") is not None
