"""How other commands find a running stack, and how a second one in the same place is refused."""

from __future__ import annotations

import fcntl
import json
import logging
import os
import stat
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from datp_tasks.errors import LocalStackError
from datp_tasks.local.private_files import read_text, write_private

log = logging.getLogger("datp.local")

#: Where `datp up` keeps its data, unless it is told otherwise.
DEFAULT_DIRECTORY = ".datp"
#: The server's part of every API key, kept as long as the data are.
PEPPER_FILE = "key-pepper"
KEYRING_FILE = "keyring.json"
#: By a file, or by its content.
KEYRING_VARIABLES = ("DATP_SECURITY__KEYRING_FILE", "DATP_SECURITY__KEYRING")
RUN_FILE = "run.json"
#: The jobs of beat have a worker of their own here: an archiver at work holds up no transaction.
#: A stack on a laptop is run by one person, so nothing waits for a second one.
POLICY_VARIABLE = "DATP_SECURITY__POLICY_FILE"
STEPS_VARIABLE = "DATP_STEPS"
OF_A_STACK = {
    "DATP_MAINTENANCE_GROUP": "maintenance",
    POLICY_VARIABLE: "single-person",
}
WRITABLE_BY_OTHERS = stat.S_IWGRP | stat.S_IWOTH
LOCK_FILE = "lock"
LOCK_TRIES = 10
LOCK_PAUSE_S = 0.05


@dataclass(frozen=True)
class RunInfo:
    """A running stack. The URLs contain passwords, so they are not part of its text form.

    `broker_url` is empty if the settings are to derive it from `redis_url`.
    """

    directory: Path
    pid: int
    started_at: datetime
    redis_url: str = field(repr=False)
    broker_url: str = field(repr=False)
    database_url: str = field(repr=False)
    groups: tuple[str, ...] = ()
    pids: Mapping[str, int] = field(default_factory=dict)
    #: What its processes were told needs a second person: commands here keep to the same.
    policy_file: str = OF_A_STACK[POLICY_VARIABLE]
    #: The modules that its workers import: a command here knows the same step types.
    steps: tuple[str, ...] = ()


def write_run_file(info: RunInfo) -> None:
    content = {
        "pid": info.pid,
        "started_at": info.started_at.isoformat(),
        "redis_url": info.redis_url,
        "broker_url": info.broker_url,
        "database_url": info.database_url,
        "groups": list(info.groups),
        "pids": dict(info.pids),
        "policy_file": info.policy_file,
        "steps": list(info.steps),
    }
    write_private(info.directory / RUN_FILE, json.dumps(content, indent=2) + "\n")


def read_run_file(directory: Path) -> RunInfo | None:
    """The stack that runs in this directory; None if there is none (any more)."""
    info = read_last_run(directory)
    return info if info is not None and _is_locked(directory) else None


def read_last_run(directory: Path) -> RunInfo | None:
    """What the run file says, whether or not that stack still runs."""
    directory = Path(directory).absolute()
    if not all(map(_is_trusted, (directory, directory / RUN_FILE))):
        return None
    try:
        text = read_text(directory / RUN_FILE)
        return None if text is None else _parse(directory, json.loads(text))
    except OSError as error:
        raise LocalStackError(f"{directory / RUN_FILE} cannot be read: {error}") from error
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise LocalStackError(f"{directory / RUN_FILE} is damaged: {error!r}") from error


def _is_trusted(path: Path) -> bool:
    """Whether only this user or root can have written it: it names code that commands import."""
    try:
        found = path.stat()
    except OSError:
        # Reading it says what is wrong, if it is more than missing.
        return True
    if found.st_uid in (os.geteuid(), 0) and not found.st_mode & WRITABLE_BY_OTHERS:
        return True
    log.warning(
        "%s is not used: it belongs to another user, or others may write to it (chmod go-w)", path
    )
    return False


def remove_run_file(directory: Path) -> None:
    (directory / RUN_FILE).unlink(missing_ok=True)


class DirectoryLock:
    """At most one stack per directory. The kernel frees the lock however the holder ends."""

    def __init__(self, directory: Path) -> None:
        self._path = directory / LOCK_FILE
        self._descriptor: int | None = None

    def acquire(self) -> None:
        descriptor = os.open(self._path, os.O_CREAT | os.O_RDWR, 0o600)
        # Tried more than once: a reader of the run file holds the lock for an instant.
        for attempt in range(LOCK_TRIES):
            if _try_lock(descriptor, fcntl.LOCK_EX):
                break
            if attempt + 1 < LOCK_TRIES:
                time.sleep(LOCK_PAUSE_S)
        else:
            os.close(descriptor)
            raise LocalStackError(self._refusal())
        holder = {"pid": os.getpid(), "since": datetime.now(UTC).isoformat(timespec="seconds")}
        os.ftruncate(descriptor, 0)
        os.write(descriptor, json.dumps(holder).encode())
        self._descriptor = descriptor

    def is_held(self) -> bool:
        return self._descriptor is not None

    def release(self) -> None:
        # The file stays: removing it would let two later holders lock two different files.
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None

    def _refusal(self) -> str:
        try:
            holder = json.loads(read_text(self._path) or "")
            who = f"pid {holder['pid']}, since {holder['since']}"
        except (ValueError, KeyError, TypeError):
            who = "starting right now"
        return f"datp is already running in {self._path.parent} ({who})."


def _is_locked(directory: Path) -> bool:
    """The lock tells more than the process id, which another program may have by now."""
    try:
        descriptor = os.open(directory / LOCK_FILE, os.O_RDONLY)
    except FileNotFoundError:
        return False
    try:
        return not _try_lock(descriptor, fcntl.LOCK_SH)
    finally:
        os.close(descriptor)


def _try_lock(descriptor: int, kind: int) -> bool:
    try:
        fcntl.flock(descriptor, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _parse(directory: Path, content: Mapping[str, Any]) -> RunInfo:
    return RunInfo(
        directory=directory,
        pid=int(content["pid"]),
        started_at=datetime.fromisoformat(content["started_at"]),
        redis_url=str(content["redis_url"]),
        broker_url=str(content["broker_url"]),
        database_url=str(content["database_url"]),
        groups=tuple(content["groups"]),
        pids={str(name): int(pid) for name, pid in content["pids"].items()},
        policy_file=str(content.get("policy_file", OF_A_STACK[POLICY_VARIABLE])),
        steps=tuple(map(str, content.get("steps", ()))),
    )
