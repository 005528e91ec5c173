"""The Celery processes of a stack: one worker per node group, and beat."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from datp_tasks.errors import LocalStackError
from datp_tasks.local.processes import ManagedProcess, Surroundings, command_line_of
from datp_tasks.local.run_file import RunInfo

GROUP_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}")
BEAT = "beat"


def check_groups(groups: Sequence[str]) -> None:
    """A group becomes part of an argument and of a file name."""
    for group in groups:
        if not GROUP_NAME.fullmatch(group):
            raise LocalStackError(f"{group!r} is not the name of a node group.")
    if len(set(groups)) != len(groups):
        raise LocalStackError(f"A node group is named twice: {', '.join(groups)}.")


def worker_process(
    group: str, *, app: str, concurrency: int, logs_dir: Path, env: Mapping[str, str]
) -> ManagedProcess:
    """A worker for one group. Gossip and mingle only slow down a reconnect.

    Without heartbeats Celery has no way to switch on events later, and Flower would see nothing.
    """
    argv = (
        *_celery(app),
        "worker",
        "-Q",
        group,
        "-n",
        _node_name(group),
        "--concurrency",
        str(concurrency),
        "--without-gossip",
        "--without-mingle",
        "--loglevel",
        "INFO",
    )
    return ManagedProcess(
        worker_name(group),
        argv,
        log_path=worker_log(logs_dir, group),
        surroundings=Surroundings(env),
    )


def beat_process(
    *, app: str, schedule_path: Path, logs_dir: Path, env: Mapping[str, str]
) -> ManagedProcess:
    argv = (*_celery(app), "beat", "-s", str(schedule_path), "--loglevel", "INFO")
    return ManagedProcess(
        BEAT, argv, log_path=logs_dir / "beat.log", surroundings=Surroundings(env)
    )


def kill_leftover_workers(last_run: RunInfo) -> None:
    """End the workers of a run that was killed. Linux has done so already, other systems do not."""
    for group in last_run.groups:
        _kill_if(last_run.pids.get(worker_name(group)), _node_name(group))
    _kill_if(last_run.pids.get(BEAT), str(last_run.directory))


def worker_log(logs_dir: Path, group: str) -> Path:
    return logs_dir / f"worker-{group}.log"


def worker_name(group: str) -> str:
    return f"worker {group}"


def _celery(app: str) -> tuple[str, ...]:
    return (sys.executable, "-m", "celery", "-A", app)


def _node_name(group: str) -> str:
    return f"{group}@%h"


def _kill_if(pid: int | None, mark: str) -> None:
    """Kill the group of a process, but only if its command line shows that it is the one meant."""
    if pid is None:
        return
    command = command_line_of(pid)
    if "celery" in command and mark in command:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(pid, signal.SIGKILL)
