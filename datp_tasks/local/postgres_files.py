"""The files of a PostgreSQL cluster: where they are, whose they are, how they are first made."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path

from datp_tasks.errors import LocalStackError
from datp_tasks.local.accounts import (
    Account,
    can_enter,
    new_open_directory,
    open_base,
    running_as_root,
    unprivileged_account,
)
from datp_tasks.local.binaries import PostgresBinaries
from datp_tasks.local.private_files import last_lines, read_text, write_private
from datp_tasks.local.processes import command_line_of, is_alive

USER = "datp"
INITDB_TIMEOUT_S = 180.0


def environment() -> dict[str, str]:
    """Only what the programs need: they may run as an account others use too."""
    kept = ("PATH", "LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH")
    return {key: os.environ[key] for key in kept if key in os.environ} | {
        # Without a fixed locale the server on macOS refuses to start.
        "LC_ALL": "C",
        "TZ": "UTC",
    }


@dataclass(frozen=True)
class PostgresFiles:
    """`directory` is PostgreSQL's own data directory; `account` is None for the current user."""

    directory: Path
    account: Account | None

    def exists(self) -> bool:
        return _is_initialized(self.directory)

    def create(self, binaries: PostgresBinaries, password: str, durable: bool) -> None:
        """Run initdb. The directory gets its name only when complete, whatever crashes before."""
        draft = self.directory.with_name("data.new")
        password_file = self.directory.with_name("initdb-password")
        if draft.exists():
            shutil.rmtree(draft)
        draft.mkdir(mode=0o700)
        write_private(password_file, password + "\n")
        try:
            if self.account is not None:
                for path in (draft, password_file):
                    os.chown(path, self.account.uid, self.account.gid)
            self._run_initdb(binaries, draft, password_file, durable)
            draft.rename(self.directory)
        except OSError as error:
            raise LocalStackError(f"No cluster can be made at {self.directory}: {error}") from error
        finally:
            password_file.unlink(missing_ok=True)

    def _run_initdb(
        self, binaries: PostgresBinaries, draft: Path, password_file: Path, durable: bool
    ) -> None:
        command = [
            str(binaries.initdb),
            f"--pgdata={draft}",
            f"--username={USER}",
            f"--pwfile={password_file}",
            "--auth=scram-sha-256",
            "--encoding=UTF8",
            "--locale=C",
        ]
        if not durable:
            command.append("--no-sync")
        try:
            done = subprocess.run(
                command,
                cwd=draft,
                env=environment(),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                timeout=INITDB_TIMEOUT_S,
                check=False,
                user=self.account.uid if self.account else None,
                group=self.account.gid if self.account else None,
                extra_groups=[] if self.account else None,
            )
        except subprocess.SubprocessError as error:
            raise LocalStackError(f"initdb failed: {error}") from error
        if done.returncode != 0:
            raise LocalStackError(
                f"initdb failed (exit code {done.returncode}):\n{last_lines(done.stdout)}"
            )

    def is_served_by(self, command: str) -> bool:
        """Whether a process with this command line is a server on these files."""
        return "postgres" in command and str(self.directory) in command

    def excuse_reused_pid(self) -> None:
        """Let a server start although another program now has the process id of one that crashed.

        The file is not removed: by its other lines PostgreSQL sees whether children of the crashed
        server are still at work, and waits for them. Only the id is replaced, by that of this
        process, which PostgreSQL as its child takes for stale.
        """
        pid = self.recorded_pid()
        if pid is None or not is_alive(pid) or self.is_served_by(command_line_of(pid)):
            return
        lines = self._pid_file.read_text(encoding="utf-8").splitlines(keepends=True)
        # Written in place, because the file must keep its owner.
        self._pid_file.write_text("".join([f"{os.getpid()}\n", *lines[1:]]), encoding="utf-8")

    @property
    def _pid_file(self) -> Path:
        return self.directory / "postmaster.pid"

    def recorded_pid(self) -> int | None:
        """The process id that a server has left here; the process may be gone."""
        first_line = (read_text(self._pid_file) or "").partition("\n")[0]
        return int(first_line) if first_line.isdigit() else None


def find_files(data_dir: Path, durable: bool, base: Path | None = None) -> PostgresFiles:
    """Where the cluster of this data directory is or will be, and who runs it."""
    if not running_as_root():
        return PostgresFiles(_checked_owner(data_dir / "data"), None)
    account = unprivileged_account()
    directory = _place(data_dir, account, durable, base)
    if directory.exists():
        status = directory.stat()
        if status.st_uid != 0:
            # Made by a normal user before: it stays with that user.
            account = Account(status.st_uid, status.st_gid)
    return PostgresFiles(directory, account)


def _place(data_dir: Path, account: Account, durable: bool, base: Path | None) -> Path:
    inside = (data_dir / "data").resolve()
    pointer = data_dir / "location"
    elsewhere = read_text(pointer)
    if elsewhere:
        if not Path(elsewhere).parent.is_dir():
            raise LocalStackError(
                f"The data that {pointer} points to is gone. Remove {data_dir} to start anew."
            )
        return Path(elsewhere)
    if inside.exists() or can_enter(data_dir, account):
        return inside
    if base is None:
        base = open_base() if durable else Path(tempfile.gettempdir())
    directory = new_open_directory(base.resolve(), data_dir) / "data"
    write_private(pointer, f"{directory}\n")
    return directory


def _checked_owner(directory: Path) -> Path:
    if directory.exists() and directory.stat().st_uid != os.geteuid():
        raise LocalStackError(f"{directory} belongs to another user (was datp run as root here?).")
    return directory.resolve()


def _is_initialized(directory: Path) -> bool:
    return (directory / "PG_VERSION").exists()
