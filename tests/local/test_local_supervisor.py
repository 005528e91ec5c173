from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from datp_tasks.local.processes import ManagedProcess
from datp_tasks.local.redis_server import RedisServer
from datp_tasks.local.supervisor import LONGEST_DELAY_S, STEADY_AFTER_S, Supervisor
from tests.support.eventually import eventually

# Notes its name in a file shared by all when asked to stop.
ORDERLY = 'trap "echo {name} >> {place}/stopped; exit 0" TERM; : > {place}/{name}; {idle}'
IDLE = "while :; do sleep 0.02; done"


class Clock:
    """Time that passes only when told to."""

    def __init__(self) -> None:
        self.now_s = 1_000.0

    def __call__(self) -> float:
        return self.now_s

    def advance(self, seconds: float) -> None:
        self.now_s += seconds


def process(name: str, script: str, place: Path) -> ManagedProcess:
    return ManagedProcess(name, ["sh", "-c", script], log_path=place / f"{name}.log")


def orderly(name: str, place: Path) -> ManagedProcess:
    return process(name, ORDERLY.format(name=name, place=place, idle=IDLE), place)


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def said() -> list[str]:
    return []


@pytest.fixture
def supervisor(clock: Clock, said: list[str]) -> Iterator[Supervisor]:
    supervisor = Supervisor(said.append, now_s=clock)
    yield supervisor
    supervisor.stop(forced=lambda: True)


def test_a_dying_child_is_started_again_ever_more_slowly(
    supervisor: Supervisor, clock: Clock, said: list[str], tmp_path: Path
) -> None:
    child = process("worker master", f"echo run >> {tmp_path}/runs; exit 1", tmp_path)
    supervisor.start([child])
    delays_s = [0.5, 1.0, 2.0, 4.0, 8.0, 16.0, LONGEST_DELAY_S, LONGEST_DELAY_S]
    for count, delay_s in enumerate(delays_s, start=1):
        eventually(lambda: not child.is_running())
        supervisor.check()
        assert said[-1] == (f"worker master exited (code 1), starting again in {delay_s:.1f} s")
        clock.advance(delay_s - 0.01)
        supervisor.check()
        assert (tmp_path / "runs").read_text().count("run") == count
        clock.advance(0.01)
        supervisor.check()
    assert len(said) == len(delays_s)


def test_the_delay_starts_anew_after_a_steady_time(
    supervisor: Supervisor, clock: Clock, said: list[str], tmp_path: Path
) -> None:
    child = process("beat", IDLE, tmp_path)
    supervisor.start([child])
    for uptime_s, delay_s in ((1, 0.5), (1, 1.0), (STEADY_AFTER_S, 0.5)):
        clock.advance(uptime_s)
        child.send_signal(signal.SIGKILL)
        eventually(lambda: not child.is_running())
        supervisor.check()
        assert said[-1] == f"beat exited (by SIGKILL), starting again in {delay_s:.1f} s"
        clock.advance(delay_s)
        supervisor.check()
        assert child.is_running()
    supervisor.stop()
    assert not child.is_running()


def test_one_that_cannot_be_started_again_is_tried_later(
    supervisor: Supervisor, clock: Clock, said: list[str], tmp_path: Path
) -> None:
    program = tmp_path / "program"
    program.write_text("#!/bin/sh\nexit 3\n")
    program.chmod(0o700)
    child = ManagedProcess("tool", [str(program)], log_path=tmp_path / "log")
    supervisor.start([child])
    eventually(lambda: not child.is_running())
    program.rename(tmp_path / "moved")
    supervisor.check()
    clock.advance(0.5)
    supervisor.check()
    assert said[0] == "tool exited (code 3), starting again in 0.5 s"
    assert said[1].startswith("tool cannot be started") and said[1].endswith("in 1.0 s")


def test_stages_stop_in_reverse_order(supervisor: Supervisor, tmp_path: Path) -> None:
    children = {name: orderly(name, tmp_path) for name in ("server", "first", "second")}
    supervisor.start([children["server"]])
    supervisor.start([children["first"], children["second"]])
    eventually(lambda: all((tmp_path / name).exists() for name in children))
    supervisor.stop()
    stopped = (tmp_path / "stopped").read_text().split()
    assert set(stopped) == set(children) and stopped[-1] == "server"
    assert not supervisor.children


def test_force_does_not_wait(supervisor: Supervisor, tmp_path: Path) -> None:
    stubborn = process("stubborn", f"trap : TERM; : > {tmp_path}/ready; {IDLE}", tmp_path)
    supervisor.start([stubborn])
    eventually((tmp_path / "ready").exists)
    supervisor.stop(forced=lambda: True)
    assert stubborn.exit_code == -signal.SIGKILL


def test_a_server_is_supervised_like_a_process(
    supervisor: Supervisor,
    clock: Clock,
    said: list[str],
    new_redis: Callable[[], RedisServer],
) -> None:
    server = new_redis()
    supervisor.start([server])
    url = server.url
    server.kill()
    supervisor.check()
    clock.advance(0.5)
    supervisor.check()
    assert said == ["Redis exited (by SIGKILL), starting again in 0.5 s"]
    assert server.is_running() and server.url == url
    supervisor.stop()
    assert not server.is_running()
