"""A terminal: a shell that types what a page says, and windows for what runs until Ctrl-C.

In a block of the language `console`, a line after `$ ` is typed (further lines of it after `> `),
and everything else is what must be printed. `…` stands for anything within a line, and alone on a
line for any number of lines. Blanks and the lengths of lines in tables do not count. A block of
the language `sh` is typed as it is and must succeed.
"""

from __future__ import annotations

import os
import re
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

#: Commands that run until Ctrl-C, and what they print when they are ready.
UP = "make up"
SERVERS = {
    re.compile(r"make up"): "Ctrl-C stops everything; the data stay.\n",
    re.compile(r"(\w+=\S+ )*celery -A datp_tasks worker .*"): " ready.\n",
}
COMMAND_S = 60.0
END_MARK = "\x01"


@dataclass(frozen=True)
class Typed:
    """One command of a console block and what must come of it."""

    command: str
    printed: str


def typed_in(text: str) -> Iterator[Typed]:
    """The commands of a console block with what they print."""
    command: list[str] = []
    printed: list[str] = []
    for line in text.split("\n"):
        if line.startswith("$ "):
            if command:
                yield Typed("\n".join(command), "\n".join(printed))
            command, printed = [line.removeprefix("$ ")], []
        elif line.startswith("> ") and command and not printed:
            command.append(line.removeprefix("> "))
        else:
            assert command, f"what prints {line!r}?"
            printed.append(line)
    assert command, "a console block shows at least one command"
    yield Typed("\n".join(command), "\n".join(printed))


def agrees(expected: str, found: str) -> bool:
    """Whether this was printed, as far as the page says."""
    lines = [_plain(line) for line in expected.strip("\n").split("\n")]
    parts = [
        r"(?:[^\n]*\n)*?" if line == "…" else re.escape(line).replace("…", "[^\n]*") + r"\n"
        for line in lines
        if line or len(lines) > 1
    ]
    plain = "\n".join(_plain(line) for line in found.strip("\n").split("\n")) + "\n"
    return re.fullmatch("".join(parts), plain if plain.strip() else "") is not None


def _plain(line: str) -> str:
    line = re.sub(r"[━─]+", "─", line)
    return re.sub(r"\s+", " ", line).strip()


class Terminal:
    """A folder with a shell in it, as a newcomer has after cloning and `make install`."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.environment = _environment(folder)
        self._windows: dict[str, Window] = {}
        self._shell = self._new_shell()

    def new_shell(self) -> None:
        """Another window: variables of the last page are gone."""
        self._end_shell()
        self._shell = self._new_shell()

    def type(self, command: str) -> str:
        """Do what a newcomer does with this line; what is printed then."""
        for pattern, last_words in SERVERS.items():
            if pattern.fullmatch(command):
                return self.serve(command, last_words)
        code, printed = self.run(command)
        assert code == 0, f"{command}\nended with {code}:\n{printed}"
        return printed

    def run(self, command: str) -> tuple[int, str]:
        """The exit code and what was printed."""
        assert self._shell.stdin is not None and self._shell.stdout is not None
        script = f"{{\n{command}\n}} </dev/null 2>&1; printf '{END_MARK}%s{END_MARK}\\n' $?\n"
        self._shell.stdin.write(script.encode())
        self._shell.stdin.flush()
        ends_at_s = time.monotonic() + COMMAND_S
        text = ""
        while not (end := re.search(f"{END_MARK}(\\d+){END_MARK}\n$", text)):
            left_s = ends_at_s - time.monotonic()
            ready, _, _ = select.select([self._shell.stdout], [], [], max(0.0, left_s))
            assert ready, f"{command}\nhas not ended within {COMMAND_S:g} s:\n{text}"
            more = os.read(self._shell.stdout.fileno(), 65_536)
            assert more, f"{command}\nended the shell:\n{text}"
            text += more.decode()
        return int(end[1]), text[: end.start()]

    def serve(self, command: str, last_words: str) -> str:
        """Start it in a window, unless just that runs; what it printed at its start."""
        if command not in self._windows:
            # What was exported in this shell was so in that window.
            environment = dict(
                line.partition("=")[::2] for line in self.run("env -0")[1].split("\0") if line
            )
            log = self.folder.with_name(f"{self.folder.name}-{len(self._windows)}.log")
            self._windows[command] = Window(command, self.folder, environment, log)
        return self._windows[command].printed_until(last_words)

    def close(self) -> None:
        self._end_shell()
        # The first window has the servers that the others need.
        for window in reversed(self._windows.values()):
            window.close()

    def _new_shell(self) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            ["bash", "--norc", "--noprofile"],
            cwd=self.folder,
            env=self.environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )

    def _end_shell(self) -> None:
        with self._shell:
            assert self._shell.stdin is not None
            self._shell.stdin.close()
            self._shell.wait(COMMAND_S)


class Window:
    """A command that runs until Ctrl-C."""

    def __init__(
        self, command: str, folder: Path, environment: dict[str, str], log_path: Path
    ) -> None:
        self._command = command
        self._log_path = log_path
        with log_path.open("wb") as log:
            self._process = subprocess.Popen(
                ["bash", "-c", command],
                cwd=folder,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def printed_until(self, last_words: str) -> str:
        ends_at_s = time.monotonic() + COMMAND_S
        while last_words not in (log := self._log_path.read_text(errors="replace")):
            assert self._process.poll() is None, f"{self._command} has ended:\n{log}"
            assert time.monotonic() < ends_at_s, f"{self._command} is not ready:\n{log}"
            select.select([], [], [], 0.05)
        return log.split(last_words)[0] + last_words

    def close(self) -> None:
        if self._process.poll() is None:
            os.killpg(self._process.pid, signal.SIGINT)
        self._process.wait(COMMAND_S)
        self._log_path.unlink(missing_ok=True)


def _environment(folder: Path) -> dict[str, str]:
    kept = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("DATP_", "PYTEST_", "MAKE", "MFLAGS", "COV_"))
    }
    path = os.pathsep.join((str(Path(sys.executable).parent), kept.get("PATH", os.defpath)))
    return kept | {
        "PATH": path,
        "PWD": str(folder),
        "COLUMNS": "120",
        "TERM": "dumb",
        "NO_COLOR": "1",
        "PYTHONDONTWRITEBYTECODE": "1",
    }
