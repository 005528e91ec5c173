"""util/child-pipeline, util/delay, util/wait, util/progress-report, util/fixed-reply."""

from __future__ import annotations

from typing import Any

import pytest

from datp_tasks.engine.builtin.child_pipeline import child_pipeline
from datp_tasks.engine.builtin.delay import delay
from datp_tasks.engine.builtin.fixed_reply import fixed_reply
from datp_tasks.engine.builtin.progress_report import progress_report
from datp_tasks.engine.builtin.wait import wait
from datp_tasks.engine.registry import registry
from datp_tasks.model.outcome import Abort, Call, Fail, Sleep
from tests.engine.builtin_context import HandMadeContext, mistakes, run

ROUTES: dict[str, Any] = {
    "field": "customer.country",
    "map": {"PH": "kyc-ph", "1": "one", "true": "yes"},
}


def test_all_shipped_step_types_are_registered_with_a_check() -> None:
    import datp_tasks.engine.builtin  # noqa: F401

    for name in (
        "http/request",
        "ledger/submit-batch",
        "util/child-pipeline",
        "util/delay",
        "util/fixed-reply",
        "util/mandatory-fields",
        "util/map-fields",
        "util/progress-report",
        "util/wait",
    ):
        assert registry.get(name).check_function is not None
        assert registry.get(name).description


def test_a_fixed_child_gets_the_whole_input() -> None:
    assert run(child_pipeline, {"a": 1}, pipeline="kyc") == Call("kyc", {"a": 1})


@pytest.mark.parametrize(("value", "child"), [("PH", "kyc-ph"), (1, "one"), (True, "yes")])
def test_a_child_is_chosen_by_a_field(value: Any, child: str) -> None:
    data = {"customer": {"country": value}}
    assert run(child_pipeline, data, **ROUTES) == Call(child, data)


@pytest.mark.parametrize(
    "data", [{}, {"customer": {"country": "XX"}}, {"customer": {"country": []}}]
)
def test_without_a_match_the_default_is_called_or_the_transaction_fails(data: Any) -> None:
    assert run(child_pipeline, data, **ROUTES, default="other") == Call("other", data)
    with pytest.raises(Fail, match=r"no pipeline to run: customer\.country is"):
        run(child_pipeline, data, **ROUTES)


def test_a_value_from_the_client_does_not_fill_the_note() -> None:
    with pytest.raises(Fail) as failed:
        run(child_pipeline, {"customer": {"country": "X" * 10_000}}, **ROUTES)
    assert len(failed.value.note) < 200


@pytest.mark.parametrize(
    ("params", "mistake"),
    [
        ({}, "either pipeline, or field and map, must be given"),
        ({"field": "a"}, "either pipeline, or field and map, must be given"),
        ({"pipeline": "a", "map": {}}, "map cannot be used together with pipeline"),
        ({"pipeline": ""}, "pipeline must be the name of a pipeline"),
        ({"pipeline": 5}, "pipeline must be text, was 5"),
        ({"pipline": "a"}, "pipline is unknown; did you mean pipeline?"),
        ({"field": "a..b", "map": {}}, "field must be a dotted path"),
        ({"field": "a", "map": {"x": 5}}, "map.x must be the name of a pipeline, was 5"),
    ],
)
def test_mistakes_of_child_pipeline_are_named(params: dict[str, Any], mistake: str) -> None:
    assert any(mistake in each for each in mistakes(child_pipeline, **params))


def test_a_delay_sleeps_once_and_is_then_done() -> None:
    assert run(delay, {}, seconds=5) == Sleep(seconds=5)
    assert run(delay, {}, seconds=5, sleeps=1) is None
    assert run(delay, {}, seconds=0) is None


def test_a_random_delay_stays_in_its_range() -> None:
    for _ in range(100):
        assert 2 <= run(delay, {}, minSeconds=2, maxSeconds=3).seconds <= 3


def test_the_data_changes_the_delay_only_if_that_is_allowed() -> None:
    asked = {"delaySeconds": 7}
    assert run(delay, asked, seconds=5) == Sleep(seconds=5)
    assert run(delay, asked, seconds=5, allowOverride=True) == Sleep(seconds=7)
    assert run(delay, {"delaySeconds": 0}, seconds=5, allowOverride=True) is None
    assert run(delay, {}, seconds=5, allowOverride=True) == Sleep(seconds=5)


@pytest.mark.parametrize("asked", [-1, "7", True, 10**12, [], float("nan")])
def test_a_delay_that_makes_no_sense_fails(asked: Any) -> None:
    with pytest.raises(Fail, match="delaySeconds must be from 0 to"):
        run(delay, {"delaySeconds": asked}, seconds=5, allowOverride=True)


@pytest.mark.parametrize(
    "params",
    [
        {},
        {"seconds": -1},
        {"seconds": "5"},
        {"seconds": True},
        {"seconds": 5, "minSeconds": 1, "maxSeconds": 2},
        {"minSeconds": 1},
        {"minSeconds": 3, "maxSeconds": 2},
        {"seconds": 5, "allowOverride": "yes"},
        {"seconds": 5, "ms": 5},
    ],
)
def test_mistakes_of_delay_are_named(params: dict[str, Any]) -> None:
    assert len(mistakes(delay, **params)) >= 1


def wait_with(value: Any, **params: Any) -> Any:
    assert mistakes(wait, switch="ok", **params) == []
    switches = {} if value is None else {"ok": value}
    return wait(HandMadeContext(params={"switch": "ok", **params}, switches=switches), {})


@pytest.mark.parametrize("value", [None, False, 0, ""])
def test_wait_sleeps_while_the_switch_is_not_set(value: Any) -> None:
    assert wait_with(value, seconds=60) == Sleep(seconds=60, switch="ok")
    assert wait_with(value) == Sleep(switch="ok")


@pytest.mark.parametrize("value", [True, 1, "yes"])
def test_wait_goes_on_when_the_switch_is_set(value: Any) -> None:
    assert wait_with(value) is None


def test_wait_goes_on_at_the_expected_value_only() -> None:
    assert wait_with("yes", expect="yes") is None
    assert wait_with(False, expect=[False, "no"]) is None
    assert wait_with("perhaps", expect="yes", seconds=1) == Sleep(seconds=1, switch="ok")
    assert wait_with(True, expect=1, seconds=1) == Sleep(seconds=1, switch="ok")


def test_wait_fails_at_the_value_that_says_no() -> None:
    with pytest.raises(Fail, match="the switch ok is 'no'"):
        wait_with("no", failOn=["no", False])
    with pytest.raises(Fail):
        wait_with(False, failOn=["no", False])
    assert isinstance(wait_with(0, failOn=False), Sleep)


@pytest.mark.parametrize(
    "params",
    [
        {"switch": None},
        {"switch": ""},
        {"seconds": 0},
        {"expect": {}},
        {"failOn": [None]},
        {"expect": ["a", 1], "failOn": 1},
        {"sw": "x"},
    ],
)
def test_mistakes_of_wait_are_named(params: dict[str, Any]) -> None:
    assert len(mistakes(wait, **({"switch": "ok"} | params))) >= 1


def test_a_progress_report_shows_fields_and_stops_nothing() -> None:
    report = {"stage": "paying", "to": "{{payee.name}}", "n": "{{none}}"}
    assert mistakes(progress_report, report=report) == []
    ctx = HandMadeContext(params={"report": report})
    assert progress_report(ctx, {"payee": {"name": "Ann"}}) is None
    assert ctx.reports == [{"stage": "paying", "to": "Ann", "n": None}]


@pytest.mark.parametrize("params", [{}, {"report": "text"}, {"report": {"a": "{{b..c}}"}}])
def test_mistakes_of_progress_report_are_named(params: dict[str, Any]) -> None:
    assert len(mistakes(progress_report, **params)) >= 1


def test_a_fixed_reply_succeeds_fails_or_aborts() -> None:
    assert run(fixed_reply, {"x": 1}, output={"a": 1}) == {"a": 1}
    for ending, params in ((Fail, {"fail": True}), (Abort, {"abort": True})):
        with pytest.raises(ending, match="closed") as ended:
            run(fixed_reply, {}, output={"code": 7}, note="closed", **params)
        assert ended.value.output == {"code": 7}


@pytest.mark.parametrize(
    "params",
    [
        {},
        {"fail": True, "abort": True},
        {"output": []},
        {"fail": "yes"},
        {"output": {}, "note": "why"},
        {"fail": True, "note": 5},
    ],
)
def test_mistakes_of_fixed_reply_are_named(params: dict[str, Any]) -> None:
    assert len(mistakes(fixed_reply, **params)) >= 1
