"""Test cases from the console: what may be run, and a process that may do anything."""

from __future__ import annotations

import asyncio
import textwrap
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from datp_tasks import Pipeline
from datp_tasks.api.console import case_runs
from datp_tasks.api.console.case_runs import CaseRuns, CasesBusy, CasesNotRun, ShownCase
from datp_tasks.engine.registry import discover, registry
from datp_tasks.model.actor import Role
from datp_tasks.model.case_effects import WITHOUT_EFFECT, without_stand_in
from datp_tasks.testing import case_process
from tests.api.test_console_access import signed_in
from tests.api.test_console_operations import REASON, noted, said
from tests.support.api_house import ApiHouse
from tests.support.eventually import eventually

REAL = """
pipeline: real
steps: [{type: t/echo, name: pay}]
tests:
  - {name: stands in, stubs: {pay: {output: {}}}}
  - {name: pays for real}
"""
Run = Callable[[str], dict[str, ShownCase]]


async def no_note() -> None:
    """Nothing is kept."""


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Runs this program in place of the one that runs cases."""
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.setattr(case_runs, "PROGRAM", "odd_program")

    def run(program: str) -> dict[str, ShownCase]:
        (tmp_path / "odd_program.py").write_text(textwrap.dedent(program))
        pipeline = Pipeline("p").step("util/fixed-reply").build()
        return asyncio.run(CaseRuns().run([pipeline], [], no_note))

    return run


def test_a_viewer_cannot_find_payloads_by_counting(house: ApiHouse) -> None:
    vic = signed_in(house, "vic", Role.VIEWER)
    assert vic.get("/bulk/cancel?attr=amount>=100").status_code == 403
    assert vic.get("/bulk/cancel?owner=a").status_code == 403
    opal = signed_in(house, "opal", Role.OPERATOR)
    assert opal.get("/bulk/cancel?attr=amount>=100").status_code == 200


def test_a_case_that_would_run_for_real_is_refused(
    house: ApiHouse, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Would it be started, the page would say that it could not be run.
    monkeypatch.setattr(case_runs, "PROGRAM", "datp_tasks.no_such_module")
    admin = signed_in(house, "adam", Role.ADMIN)
    stored = admin.post("/drafts", token=admin.token(), yaml=REAL).headers["location"]
    place = f"/pipelines/real/versions/{stored.rpartition('=')[2]}/test"
    why = "The case 'pays for real' has no stand-in for t/echo"
    assert why in said(admin, f"/console{place}")
    answer = admin.post(place, token=admin.token(), **REASON)
    assert why in said(admin, answer.headers["location"])
    assert noted(house, "pipeline.test", "real") == []


def test_what_stands_in_is_looked_for_in_called_pipelines_too() -> None:
    child = Pipeline("child").step("http/request", name="ask").step("util/wait").build()
    idle = Pipeline("idle").step("bank/never").build()
    call = {"field": "a", "map": {"x": "child"}, "default": "gone"}
    cases: list[dict[str, Any]] = [
        {"name": "bare"},
        {"name": "by name", "stubs": {"ask": {"output": {}}}},
    ]
    cases += [{"name": "whole", "stubs": {"util/child-pipeline": {"output": {}}}}]
    made = Pipeline("p", tests=cases).step("util/child-pipeline", params=call).build()
    found = [without_stand_in(made, [child, idle], each) for each in made.cases]
    assert found == [["http/request"], [], []]


def test_each_shipped_step_type_is_known_to_have_effects_or_none() -> None:
    discover(())
    shipped = {
        name
        for name in registry.names()
        if registry.get(name).function.__module__.startswith("datp_tasks.engine.builtin.")
    }
    assert shipped - WITHOUT_EFFECT == {"http/request", "ledger/submit-batch"}
    assert shipped >= WITHOUT_EFFECT


def test_a_run_is_noted_only_if_it_starts(run: Run) -> None:
    """Two at once: the second is refused, and the audit has nothing of it."""
    runs, kept = CaseRuns(), list[str]()
    pipeline = Pipeline("p").step("util/fixed-reply").build()

    async def second() -> None:
        kept.append("second")

    async def first() -> None:
        kept.append("first")
        with pytest.raises(CasesBusy, match="already"):
            await runs.run([pipeline], [], second)

    run("print('[]')")
    assert asyncio.run(runs.run([pipeline], [], first)) == {}
    assert kept == ["first"]


@pytest.mark.parametrize("answer", ["", "odd", "[1]", "[{}]", "3", '[{"case": []}]'])
def test_an_answer_that_cannot_be_read_is_trouble(answer: str) -> None:
    with pytest.raises(CasesNotRun, match="no answer"):
        case_runs._results(answer.encode())


def test_an_endless_answer_is_cut_off(run: Run) -> None:
    began = time.monotonic()
    with pytest.raises(CasesNotRun, match="longer than 1,000,000 bytes"):
        run("while True: print('x' * 100_000)")
    assert time.monotonic() - began < case_runs.GRACE_S


def test_only_the_end_of_long_errors_is_read(run: Run, caplog: pytest.LogCaptureFixture) -> None:
    last = "datp_tasks.errors.LocalStackError: the last line"
    with pytest.raises(CasesNotRun, match=r"run: the last line$"):
        run(f"import sys; sys.stderr.write('y' * 5_000_000); sys.exit('\\n{last}')")
    [logged] = [each for each in caplog.records if each.name == "datp.console"]
    assert len(logged.getMessage()) < case_runs.LOGGED_CHARS_MAX + 100


def test_what_a_library_said_is_for_the_log(run: Run, caplog: pytest.LogCaptureFixture) -> None:
    with pytest.raises(CasesNotRun, match="the log of the API has") as trouble:
        run("{}['secret']")
    assert "KeyError" in caplog.text and "KeyError" not in str(trouble.value)


def test_what_a_step_has_left_running_ends_too(run: Run, tmp_path: Path) -> None:
    file = tmp_path / "pid"
    run(f"""
        import subprocess
        child = subprocess.Popen(["sleep", "60"], stdout=subprocess.DEVNULL)
        open({str(file)!r}, "w").write(str(child.pid))
        print("[]")
    """)
    eventually(lambda: _has_ended(int(file.read_text())))


def _has_ended(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return True
    # A container without an init leaves it as a zombie.
    return state == "Z"


def test_the_process_gets_no_secret_of_the_environment(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("DATP_DATABASE_URL", "AWS_SECRET_ACCESS_KEY", "BANK_TOKEN"):
        monkeypatch.setenv(name, "secret")
    monkeypatch.setenv("TZ", "UTC")
    found = run("""
        import json, os
        print(json.dumps([{"case": "env", "status": "", "mistakes": sorted(os.environ)}]))
    """)
    passed = set(found["env"].mistakes)
    assert {"PATH", "PYTHONPATH", "TZ"} <= passed
    assert not passed & {"DATP_DATABASE_URL", "AWS_SECRET_ACCESS_KEY", "BANK_TOKEN"}


def test_only_the_answer_is_in_the_answer_and_the_process_ends_by_itself(run: Run) -> None:
    """Both in one process, because its imports take the time of this test."""
    assert case_process.TIME_LIMIT_S > case_runs.RUN_S + case_runs.GRACE_S
    found = run("""
        import os, signal, subprocess, time
        from datp_tasks.testing import case_process
        from datp_tasks.testing.case_runner import CaseOutcome

        def cases(*_):
            os.write(1, b"noise")
            print("noise")
            subprocess.run(["echo", "noise"], check=True)
            # As the time limit of a step does: it stops the alarm of the process.
            signal.setitimer(signal.ITIMER_REAL, 0)
            try:
                time.sleep(20)
            except SystemExit:
                return [CaseOutcome("p", "c", "ended in time")]

        case_process.TIME_LIMIT_S = 0.2
        case_process.run_on_own_servers = cases
        case_process.main()
    """)
    assert found == {"c": ShownCase("ended in time", [])}
