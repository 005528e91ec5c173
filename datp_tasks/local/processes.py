"""One child process: started in its own group, logged to a file, stopped with rising insistence."""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from datp_tasks.errors import LocalStackError
from datp_tasks.local.accounts import Account

POLL_S = 0.02
LOG_BYTES_MAX = 20_000_000
PR_SET_PDEATHSIG = 1


class StopStep(NamedTuple):
    """Send this signal, then give the process that long."""

    signal: signal.Signals
    wait_s: float


class Surroundings(NamedTuple):
    """What a child finds when it starts; None is as its parent has it."""

    env: Mapping[str, str] | None = None
    cwd: Path | None = None
    account: Account | None = None


WORKER_STOP_PLAN = (
    StopStep(signal.SIGTERM, 10),
    StopStep(signal.SIGQUIT, 5),
    StopStep(signal.SIGKILL, 5),
)


INHERITED = Surroundings()


class ManagedProcess:
    """One child. Polite signals go to the process itself, SIGKILL to its whole group.

    A prefork worker asked politely lets its children finish; the same signal sent to the children
    would end them in the middle of a task. What is left of the group when the process has ended is
    killed, so nothing stays behind.
    """

    def __init__(
        self,
        name: str,
        argv: Sequence[str],
        *,
        log_path: Path,
        surroundings: Surroundings = INHERITED,
        stop_plan: Sequence[StopStep] = WORKER_STOP_PLAN,
        death_signal: signal.Signals = signal.SIGKILL,
    ) -> None:
        self.name = name
        self.argv = tuple(argv)
        self.log_path = log_path
        self._surroundings = surroundings
        self._stop_plan = tuple(stop_plan)
        self._death_signal = death_signal
        self._child: subprocess.Popen[bytes] | None = None
        self._stop_step: int | None = None
        self._step_ends_at_s = 0.0

    @property
    def pid(self) -> int | None:
        """The id of the running process, which is also that of its group."""
        return self._child.pid if self._child is not None and self.is_running() else None

    @property
    def exit_code(self) -> int | None:
        """As in subprocess: negative for a signal, None if it runs or never ran."""
        return None if self._child is None or self.is_running() else self._child.returncode

    def start(self) -> None:
        if self.is_running():
            return
        self._stop_step = None
        self.log_path.parent.mkdir(parents=True, exist_ok=True)
        _make_room(self.log_path)
        descriptor = os.open(self.log_path, os.O_CREAT | os.O_APPEND | os.O_WRONLY, 0o600)
        env, cwd, account = self._surroundings
        try:
            self._child = subprocess.Popen(
                self.argv,
                env=None if env is None else dict(env),
                cwd=cwd,
                stdin=subprocess.DEVNULL,
                stdout=descriptor,
                stderr=descriptor,
                start_new_session=True,
                user=account.uid if account else None,
                group=account.gid if account else None,
                extra_groups=[] if account else None,
                preexec_fn=_before_program(self._death_signal),
            )
        except (OSError, subprocess.SubprocessError) as error:
            raise LocalStackError(f"{self.name} cannot be started: {error}") from error
        finally:
            os.close(descriptor)

    def restart(self) -> None:
        self.start()

    def is_running(self) -> bool:
        child = self._child
        if child is None or child.returncode is not None:
            return False
        if not _has_ended(child):
            return True
        # Before it is reaped, the ended process keeps its group's number from being used again.
        self._signal_group(signal.SIGKILL)
        child.wait()
        return False

    def begin_stop(self) -> None:
        """Send the first signal and return at once."""
        if self._stop_step is None and self.is_running():
            self._enter_step(0)

    def stop_finished(self) -> bool:
        """Whether it has ended; sends the next signal when the time of the last one is over."""
        if not self.is_running():
            return True
        if self._stop_step is None:
            self._enter_step(0)
        elif time.monotonic() >= self._step_ends_at_s:
            if self._stop_step + 1 == len(self._stop_plan):
                raise LocalStackError(f"{self.name} (pid {self.pid}) does not end.")
            self._enter_step(self._stop_step + 1)
        return False

    def stop(self) -> None:
        while not self.stop_finished():
            time.sleep(POLL_S)

    def kill(self) -> None:
        """End it now, as a crash would."""
        if self._child is not None and self.is_running():
            self._signal_group(signal.SIGKILL)
            self._child.wait()

    def send_signal(self, number: signal.Signals) -> None:
        """To the process itself, not to its group."""
        if self._child is not None and self.is_running():
            self._child.send_signal(number)

    def _enter_step(self, index: int) -> None:
        step = self._stop_plan[index]
        self._stop_step = index
        self._step_ends_at_s = time.monotonic() + step.wait_s
        if step.signal == signal.SIGKILL:
            self._signal_group(step.signal)
        else:
            self.send_signal(step.signal)

    def _signal_group(self, number: signal.Signals) -> None:
        if self._child is None:
            return
        try:
            os.killpg(self._child.pid, number)
        except ProcessLookupError:
            pass
        except PermissionError:
            # macOS says this of a group in which only the ended leader is left.
            if sys.platform != "darwin":
                raise


def is_alive(pid: int) -> bool:
    """Whether a process runs; one that has ended but was not reaped does not."""
    if sys.platform == "linux":
        try:
            status = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
            threads = len(os.listdir(f"/proc/{pid}/task"))
        except OSError:
            return False
        # While other threads are on their way out, the process still holds its files.
        if threads > 1:
            return True
        # The state follows the name, which is in parentheses and may contain anything.
        state = status.rpartition(")")[2].strip()
    else:
        state = _ask_ps(pid, "stat")
    return state != "" and state[0] not in "ZX"


def command_line_of(pid: int) -> str:
    """What a process was started with; empty if it is gone or cannot be asked."""
    if sys.platform == "linux":
        try:
            raw = Path(f"/proc/{pid}/cmdline").read_bytes()
        except OSError:
            raw = b""
        command = raw.replace(b"\0", b" ").decode(errors="replace").strip()
    else:
        command = _ask_ps(pid, "command")
    return command


def _ask_ps(pid: int, column: str) -> str:
    asked = ["ps", "-p", str(pid), "-ww", "-o", f"{column}="]
    done = subprocess.run(asked, capture_output=True, check=False)
    return done.stdout.decode(errors="replace").strip()


def _has_ended(child: subprocess.Popen[bytes]) -> bool:
    if sys.platform == "darwin" and sys.version_info < (3, 13):
        # There is no waitid yet, so this also reaps.
        ended = child.poll() is not None
    else:
        options = os.WEXITED | os.WNOHANG | os.WNOWAIT
        try:
            ended = os.waitid(os.P_PID, child.pid, options) is not None
        except ChildProcessError:
            ended = True
    return ended


def _make_room(log_path: Path) -> None:
    if log_path.exists() and log_path.stat().st_size > LOG_BYTES_MAX:
        log_path.replace(log_path.with_name(log_path.name + ".1"))


def _before_program(death_signal: signal.Signals) -> Callable[[], None]:
    """What the child does before it becomes the program.

    It takes the signals of the stop plan as a program of its own would: a shell starts what it
    runs in the background (`datp up &` in a script) with SIGINT and SIGQUIT ignored, and children
    inherit that. And it asks Linux for a signal when this process dies.
    """
    # The kernel means the parent thread, so a child of a short-lived thread would end with that.
    in_main_thread = threading.current_thread() is threading.main_thread()
    libc = None
    if sys.platform == "linux" and in_main_thread:
        libc = ctypes.CDLL(None, use_errno=True)
    parent_pid = os.getpid()

    def prepare() -> None:
        for number in (signal.SIGINT, signal.SIGQUIT, signal.SIGTERM):
            signal.signal(number, signal.SIG_DFL)
        if libc is not None:
            libc.prctl(PR_SET_PDEATHSIG, int(death_signal), 0, 0, 0)
            # The parent may have died before the kernel was asked.
            if os.getppid() != parent_pid:
                os._exit(1)

    return prepare
