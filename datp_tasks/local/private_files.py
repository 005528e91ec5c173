"""Small files that must not be lost or read by others: passwords, ports, the run file."""

from __future__ import annotations

import contextlib
import fcntl
import os
import secrets
from collections.abc import Iterator
from pathlib import Path

TAIL_BYTES = 16_384


def write_private(path: Path, text: str) -> None:
    """Write a file only its owner can read; a crash leaves the old content or the new, not half."""
    draft = path.with_name(f".{path.name}.{os.getpid()}.{secrets.token_hex(4)}")
    descriptor = os.open(draft, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600)
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        os.replace(draft, path)
    except BaseException:
        draft.unlink(missing_ok=True)
        raise
    _sync_directory(path.parent)


@contextlib.contextmanager
def sole_writer(path: Path) -> Iterator[None]:
    """For reading, changing and writing a file: another process that does so waits.

    The folder is locked, because the file itself is replaced.
    """
    descriptor = os.open(path.parent, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def read_text(path: Path) -> str | None:
    """The content without surrounding blanks; None if there is no such file."""
    try:
        return path.read_text(encoding="utf-8").strip()
    except FileNotFoundError:
        return None


def read_or_create_secret(path: Path) -> str:
    """The password kept in this file; made up the first time. Safe inside a URL."""
    known = read_text(path)
    if known:
        return known
    secret = secrets.token_urlsafe(24)
    write_private(path, secret + "\n")
    return secret


def create_directory(path: Path, mode: int) -> None:
    """Create a directory with exactly this mode; one that exists keeps the mode it has."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with contextlib.suppress(FileExistsError):
        path.mkdir()
        # mkdir's own mode is cut down by the umask, so it is set afterwards.
        path.chmod(mode)


def size_of(path: Path) -> int:
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return 0


def text_since(path: Path, offset: int = 0) -> str:
    """What was written to a log after an offset, at most its last 16 KiB."""
    try:
        with path.open("rb") as file:
            file.seek(max(offset, size_of(path) - TAIL_BYTES))
            return file.read().decode("utf-8", errors="replace")
    except FileNotFoundError:
        return ""


def last_lines(text: str, count: int = 15) -> str:
    return "\n".join(text.strip().splitlines()[-count:])


def _sync_directory(directory: Path) -> None:
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
