"""What the two embedded servers have in common: a port, a password, a process, and being ready."""

from __future__ import annotations

import os
import shutil
import time
from abc import ABC, abstractmethod
from pathlib import Path

from datp_tasks.errors import LocalStackError
from datp_tasks.local.ports import pick_free_port, port_is_free
from datp_tasks.local.private_files import last_lines, read_text, size_of, text_since, write_private
from datp_tasks.local.processes import POLL_S, ManagedProcess, StopStep, command_line_of, is_alive

START_TIMEOUT_S = 60.0
LEFTOVER_STOP_S = 30.0
LONGEST_PAUSE_S = 0.5
PORT_TAKEN = "Address already in use"


class EmbeddedServer(ABC):
    """One server on the loopback interface, with its data in a directory of its own.

    The port and the password are kept beside the data, so the URL stays the same over restarts.
    Start it from the main thread: only then does Linux end it when this process is killed.
    """

    name: str
    stop_plan: tuple[StopStep, ...]
    # Log text that says a start failed for a reason that passes by itself.
    passing_trouble: str | None = None

    def __init__(
        self, data_dir: Path, port: int | None, log_path: Path | None, start_timeout_s: float
    ) -> None:
        self.data_dir = Path(data_dir).resolve()
        self.log_path = log_path or self.data_dir / "server.log"
        self._start_timeout_s = start_timeout_s
        self._port = port
        self._port_may_change = port is None
        self._process: ManagedProcess | None = None
        self._log_offset = 0

    @property
    @abstractmethod
    def url(self) -> str:
        """Where clients connect, password included. Known from the first start on."""

    @property
    def port(self) -> int:
        if self._port is None:
            raise LocalStackError(f"{self.name} has not been started, so it has no port yet.")
        return self._port

    @property
    def pid(self) -> int | None:
        return self._process.pid if self._process else None

    @property
    def exit_code(self) -> int | None:
        return self._process.exit_code if self._process else None

    def is_running(self) -> bool:
        return self._process is not None and self._process.is_running()

    def start(self) -> None:
        """Start it and wait until it answers."""
        if self.is_running():
            return
        self._prepare_directory()
        leftover = self._leftover_pid()
        if leftover is not None:
            raise LocalStackError(f"{self.name} already runs on {self.data_dir} (pid {leftover}).")
        self._choose_port()
        self._prepare_data()
        ends_at_s = time.monotonic() + self._start_timeout_s
        while not self._launch_and_wait(ends_at_s):
            time.sleep(POLL_S)
        self._port_may_change = False
        self._when_ready()

    def restart(self) -> None:
        """Start it again under the same URL and return at once; clients find out by trying."""
        if not self.is_running():
            self._launch()

    def begin_stop(self) -> None:
        if self._process is not None:
            self._process.begin_stop()

    def stop_finished(self) -> bool:
        return self._process is None or self._process.stop_finished()

    def stop(self) -> None:
        """Stop it cleanly; the data stays."""
        if self._process is not None:
            self._process.stop()

    def kill(self) -> None:
        """End it now, as a crash would."""
        if self._process is not None:
            self._process.kill()

    def destroy(self) -> None:
        """Stop it and delete all its data."""
        # Not killed: PostgreSQL would leave its shared memory behind for good.
        self.stop()
        self.stop_leftover()
        shutil.rmtree(self.data_dir, ignore_errors=True)

    def stop_leftover(self) -> None:
        """Stop a server that some other process or object started on the same data.

        Only for a caller that knows that no process needs that server any more.
        """
        pid = self._leftover_pid() if self.data_dir.exists() else None
        if pid is None:
            return
        os.kill(pid, self.stop_plan[0].signal)
        ends_at_s = time.monotonic() + LEFTOVER_STOP_S
        # The record on disk goes before the server has let go of its port and files.
        while is_alive(pid):
            if time.monotonic() >= ends_at_s:
                raise LocalStackError(f"{self.name} of an earlier run (pid {pid}) does not stop.")
            time.sleep(POLL_S)

    def _leftover_pid(self) -> int | None:
        pid = self._recorded_pid()
        if pid is None or pid == self.pid or not self._recognizes(command_line_of(pid)):
            return None
        return pid

    @abstractmethod
    def _recorded_pid(self) -> int | None:
        """The process id that the server left on disk; the process may be gone."""

    @abstractmethod
    def _recognizes(self, command: str) -> bool:
        """Whether a process with this command line is a server on this data."""

    @abstractmethod
    def _prepare_directory(self) -> None:
        """Create the directory and the password."""

    @abstractmethod
    def _prepare_data(self) -> None:
        """Whatever must be on disk before the program can start."""

    @abstractmethod
    def _new_process(self) -> ManagedProcess:
        """The program with its arguments for the chosen port."""

    @abstractmethod
    def _answers(self) -> bool:
        """Whether it serves a client that has the password."""

    @abstractmethod
    def _when_ready(self) -> None:
        """What is to be done once it answers."""

    def _remembered_port(self) -> int | None:
        text = read_text(self.data_dir / "port")
        return int(text) if text and text.isdigit() else None

    def _choose_port(self) -> None:
        if self._port is not None:
            return
        remembered = self._remembered_port()
        if remembered is not None and port_is_free(remembered):
            self._port = remembered
        else:
            self._take_new_port()

    def _take_new_port(self) -> None:
        self._port = pick_free_port()
        write_private(self.data_dir / "port", f"{self._port}\n")

    def _launch(self) -> None:
        self._log_offset = size_of(self.log_path)
        self._process = self._new_process()
        self._process.start()

    def _launch_and_wait(self, ends_at_s: float) -> bool:
        """True once it answers, False if it is worth another try."""
        self._launch()
        pause_s = POLL_S
        while self.is_running():
            if self._answers():
                return True
            if time.monotonic() >= ends_at_s:
                self.kill()
                raise self._failure(f"did not answer within {self._start_timeout_s:g} s")
            time.sleep(pause_s)
            # A long recovery should not fill the log with refused attempts.
            pause_s = min(pause_s * 1.3, LONGEST_PAUSE_S)
        log = text_since(self.log_path, self._log_offset)
        if self._port_may_change and PORT_TAKEN in log:
            self._take_new_port()
        elif not (self.passing_trouble and self.passing_trouble in log):
            raise self._failure(f"did not start (exit code {self.exit_code})")
        if time.monotonic() >= ends_at_s:
            raise self._failure(f"did not start within {self._start_timeout_s:g} s")
        return False

    def _failure(self, what: str) -> LocalStackError:
        log = last_lines(text_since(self.log_path, self._log_offset)) or "(empty)"
        return LocalStackError(f"{self.name} {what}. Last lines of {self.log_path}:\n{log}")
