from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from datp_tasks.errors import LocalStackError
from datp_tasks.local.processes import WORKER_STOP_PLAN, ManagedProcess, StopStep, Surroundings
from tests.support.eventually import eventually

IsGone = Callable[[int], bool]

# A shell that starts two children, writes down their ids, and waits.
WITH_CHILDREN = "sleep 60 & echo $! > first; sleep 60 & echo $! > second; : > ready; wait"
# A shell that takes no notice of SIGTERM.
STUBBORN = "trap : TERM; : > ready; while :; do sleep 0.02; done"

# A parent that starts a process and then waits to be killed.
PARENT = """
import sys, threading
from pathlib import Path
from datp_tasks.local.processes import ManagedProcess

place = Path(sys.argv[1])
process = ManagedProcess("sleeper", ["sleep", "60"], log_path=place / "log")
process.start()
(place / "draft").write_text(str(process.pid))
(place / "draft").rename(place / "pid")
threading.Event().wait()
"""


def shell(script: str, place: Path, *plan: StopStep) -> ManagedProcess:
    return ManagedProcess(
        "shell",
        ["sh", "-c", script],
        log_path=place / "log",
        surroundings=Surroundings(cwd=place),
        stop_plan=plan or WORKER_STOP_PLAN,
    )


def test_stop_leaves_nothing_of_the_group(tmp_path: Path, process_is_gone: IsGone) -> None:
    process = shell(WITH_CHILDREN, tmp_path)
    process.start()
    eventually((tmp_path / "ready").exists)
    leader = process.pid
    assert leader is not None
    children = [int((tmp_path / name).read_text()) for name in ("first", "second")]
    assert {os.getpgid(pid) for pid in children} == {leader}

    process.stop()
    assert process.pid is None and process.exit_code == -signal.SIGTERM
    eventually(lambda: all(process_is_gone(pid) for pid in children))


def test_a_crash_of_the_leader_takes_its_group_along(
    tmp_path: Path, process_is_gone: IsGone
) -> None:
    process = shell(WITH_CHILDREN, tmp_path)
    process.start()
    eventually((tmp_path / "ready").exists)
    child = int((tmp_path / "first").read_text())
    process.send_signal(signal.SIGKILL)
    eventually(lambda: not process.is_running())
    eventually(lambda: process_is_gone(child))


def test_signals_become_more_insistent(tmp_path: Path) -> None:
    process = shell(STUBBORN, tmp_path, StopStep(signal.SIGTERM, 0.1), StopStep(signal.SIGQUIT, 5))
    process.start()
    eventually((tmp_path / "ready").exists)
    process.stop()
    assert process.exit_code == -signal.SIGQUIT


def test_what_a_shell_started_in_the_background_still_passes_on_its_signals(tmp_path: Path) -> None:
    process = shell(STUBBORN, tmp_path, StopStep(signal.SIGTERM, 0.1), StopStep(signal.SIGQUIT, 5))
    # A script's `datp up &` runs like this.
    before = signal.signal(signal.SIGQUIT, signal.SIG_IGN)
    try:
        process.start()
        eventually((tmp_path / "ready").exists)
        process.stop()
    finally:
        signal.signal(signal.SIGQUIT, before)
        process.kill()
    assert process.exit_code == -signal.SIGQUIT


def test_one_that_does_not_end_is_reported(tmp_path: Path) -> None:
    process = shell(STUBBORN, tmp_path, StopStep(signal.SIGTERM, 0.1))
    process.start()
    eventually((tmp_path / "ready").exists)
    with pytest.raises(LocalStackError, match="does not end"):
        process.stop()
    process.kill()
    assert process.exit_code == -signal.SIGKILL


def test_a_missing_program_is_reported(tmp_path: Path) -> None:
    process = ManagedProcess("ghost", [str(tmp_path / "nothing")], log_path=tmp_path / "log")
    with pytest.raises(LocalStackError, match="ghost cannot be started"):
        process.start()


def test_a_child_outlives_the_thread_that_started_it(tmp_path: Path) -> None:
    process = ManagedProcess("sleeper", ["sleep", "60"], log_path=tmp_path / "log")
    thread = threading.Thread(target=process.start)
    thread.start()
    thread.join()
    try:
        # Were it tied to the thread, the kernel would have killed it at the join.
        with pytest.raises(subprocess.TimeoutExpired):
            subprocess.run(["tail", f"--pid={process.pid}", "-f", os.devnull], timeout=0.2)
        assert process.is_running()
    finally:
        process.kill()


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells children of a dead parent")
def test_a_killed_parent_leaves_no_orphan(tmp_path: Path, process_is_gone: IsGone) -> None:
    parent = subprocess.Popen([sys.executable, "-c", PARENT, str(tmp_path)])
    try:
        eventually((tmp_path / "pid").exists)
        pid = int((tmp_path / "pid").read_text())
        assert not process_is_gone(pid)
    finally:
        parent.kill()
        parent.wait()
    eventually(lambda: process_is_gone(pid))
