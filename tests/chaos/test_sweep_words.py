"""How the sweep behaves towards those who use it."""

from __future__ import annotations

from typing import Any

import pytest

from datp_tasks import Pipeline, Sleep, StepContext, failpoints
from datp_tasks.live.scripts import ScriptRunner
from datp_tasks.model.status import Status
from datp_tasks.record.record_types import Summary
from datp_tasks.testing import Kit, boundaries, crash_sweep
from datp_tasks.testing.cases import KINDS, CaseResult
from datp_tasks.testing.sweep import MOVERS

Data = dict[str, Any]


@pytest.fixture
def hello(kit: Kit) -> Kit:
    kit.use(Pipeline("hello").step("util/fixed-reply", params={"output": {"hi": 1}}).build())
    return kit


def test_each_result_is_told_at_once_and_a_single_case_can_be_repeated(hello: Kit) -> None:
    told: list[CaseResult] = []
    quick: dict[str, Any] = {"kinds": ["exception"], "times": "first", "jobs": MOVERS}
    report = crash_sweep(hello, "hello", {}, say=told.append, **quick)
    assert told == report.results
    report.assert_clean()
    name = str(told[3].case)
    again = crash_sweep(hello, "hello", {}, only=[name])
    assert [str(result.case) for result in again.results] == [name]


def test_a_complaint_of_the_owner_names_the_fault_after_which_it_came(hello: Kit) -> None:
    odd: list[str] = []

    def check(summary: Summary) -> list[str]:
        odd.append(summary.tx_id)
        # Three runs show what there is; the next one is the case.
        return ["this is odd"] if len(odd) == 4 else []

    only = ["script:create:before#1=crash"]
    report = crash_sweep(hello, "hello", {}, check=check, only=only)
    with pytest.raises(AssertionError, match=r"script:create:before#1=crash\n +this is odd"):
        report.assert_clean()


def test_a_check_may_simply_assert(hello: Kit) -> None:
    def check(summary: Summary) -> None:
        assert summary.output != {"hi": 1}, "it said hi"

    with pytest.raises(AssertionError, match=r"does not even survive any fault(.|\n)*it said hi"):
        crash_sweep(hello, "hello", {}, check=check)


def test_a_sweep_that_tries_nothing_is_not_clean(hello: Kit) -> None:
    report = crash_sweep(hello, "hello", {}, only=["script:creat:before#1=crash"])
    with pytest.raises(AssertionError, match="no cases"):
        report.assert_clean()


def test_only_the_chosen_points_are_tried(hello: Kit) -> None:
    chosen = ["hop.after_claim", "script:finish:after", "script:finish:before"]
    report = crash_sweep(
        hello, "hello", {}, where=lambda point: point in chosen, times="first", jobs=MOVERS
    )
    report.assert_clean()
    assert report.points == chosen
    assert {result.case.kind for result in report.results} == set(KINDS)


def test_an_unknown_kind_is_refused(hello: Kit) -> None:
    with pytest.raises(ValueError, match="no kind explosion; there are exception, lost-answer"):
        crash_sweep(hello, "hello", {}, kinds=["explosion"])


def test_what_waits_for_a_switch_is_helped(kit: Kit) -> None:
    @kit.step("wait/kyc")
    def kyc(ctx: StepContext, data: Data) -> Data | Sleep:
        return {"kyc": ctx.switch("kyc")} if ctx.switch("kyc") else Sleep(switch="kyc")

    kit.use(Pipeline("kyc").step("wait/kyc").build())

    def approve(system: Kit, tx_id: str) -> None:
        system.set_switch(tx_id, "kyc", "approved")

    only = ["script:sleep:after#1=crash", "script:set_switch:after#1=crash"]
    report = crash_sweep(kit, "kyc", {}, when_waiting=approve, only=only, jobs=MOVERS)
    report.assert_clean()
    assert [str(result.case) for result in report.results] == only


def test_a_step_under_review_may_end_in_doubt_if_the_owner_says_so(kit: Kit) -> None:
    @kit.step("card/charge", on_crash="review")
    def charge(ctx: StepContext, data: Data) -> Data:
        return {"charged": True}

    kit.use(Pipeline("charge").step("card/charge").build())
    case = "effect:card/charge:after#1=crash"
    alone = crash_sweep(kit, "charge", {}, only=[case])
    with pytest.raises(AssertionError, match="in-doubt: a worker was lost"):
        alone.assert_clean()
    ends = [Status.SUCCESS, Status.IN_DOUBT]
    crash_sweep(kit, "charge", {}, ends=ends, only=[case]).assert_clean()


def test_afterwards_no_boundary_and_no_fault_is_left(hello: Kit) -> None:
    before = ScriptRunner.run
    crash_sweep(hello, "hello", {}, only=["script:claim:after#1=crash"], jobs=MOVERS)
    assert set(hello.jobs) > set(MOVERS)
    assert ScriptRunner.run is before
    assert hello.run("hello", {}).status is Status.SUCCESS


def test_every_boundary_of_a_run_is_passed_before_and_after(hello: Kit) -> None:
    passed: list[str] = []
    with boundaries.installed():
        failpoints.watch(passed.append)
        hello.run("hello", {})
        failpoints.disarm_all()
    seen = [point for point in passed if ":" in point]
    before = sorted(point.removesuffix(":before") for point in seen if point.endswith(":before"))
    after = sorted(point.removesuffix(":after") for point in seen if point.endswith(":after"))
    assert before == after
    assert all(failpoints.BOUNDARY.fullmatch(point) for point in seen)
    expected = {
        *("commit:transactions.accept", "script:create", "publish:util/fixed-reply"),
        *("script:claim", "effect:util/fixed-reply", "commit:transactions.finish"),
        "script:finish",
    }
    assert expected <= set(before)


def test_a_boundary_can_be_armed_by_its_name_and_a_wrong_name_is_refused() -> None:
    failpoints.arm_from_env({"DATP_FAILPOINTS": "script:claim:before=kill@2,hop.after_claim=stop"})
    failpoints.disarm_all()
    for name in ("script:claim", "claim:before", "script:claim:during", "hop.after_clam"):
        with pytest.raises(ValueError, match="there is no failpoint"):
            failpoints.arm(name, "kill")
