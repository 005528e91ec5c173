"""The journal in files of its own, outside the database: a last resort that costs little.

One file per process and hour, gzip, one JSON object a line. Each batch is a gzip member of its
own, so that a file which was cut off can be read up to its last whole batch. A batch may be
there twice, after a crash between SQL and Redis; entries are named by transaction, version and
fence. Hours and the time of a line (`at`) are those of Redis, so that no machine's clock can put
the files of several processes into a wrong order. What could not be written in time and was added
later is in files of its own, under the time at which SQL recorded it.

Files are for the user of the workers only (0600, the folder 0700). Erasing writes a file anew
without the payloads of some transactions; a lock keeps processes from adding to it meanwhile.
"""

from __future__ import annotations

import errno
import fcntl
import gzip
import heapq
import json
import logging
import os
import secrets
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from itertools import groupby
from pathlib import Path
from typing import Any, Self

from datp_tasks.failpoints import reach
from datp_tasks.model.journal import Entry
from datp_tasks.model.payload import encode
from datp_tasks.process_name import process_name
from datp_tasks.settings import Settings

log = logging.getLogger("datp.archiver")

#: A process that was killed may have left a batch cut off, so no process goes on in its file: not
#: even one with the same number on the same host, as containers have after a restart.
_START = secrets.token_hex(4)

_OWNER_ONLY = 0o600
#: The end of the name of a file that takes the place of another once it is whole.
_NEW = ".new"


class JournalFiles:
    def __init__(self, folder: Path) -> None:
        self.folder = folder

    @classmethod
    def of(cls, settings: Settings) -> Self | None:
        return cls(Path(settings.journal_dir)) if settings.journal_dir else None

    def probe(self) -> None:
        """Raise OSError if nothing can be written."""
        self._make_folder()
        (self.folder / f".probe-{_START}").write_bytes(b"")
        (self.folder / f".probe-{_START}").unlink()

    def append(
        self, changes: Mapping[str, Sequence[Entry]], now_ms: int, *, is_late: bool = False
    ) -> None:
        """Add a batch and have the disk confirm it."""
        self._make_folder()
        hour = datetime.fromtimestamp(now_ms / 1_000, UTC).strftime("%Y%m%dT%H")
        process = f"{process_name()}-{_START}"
        path = self.folder / f"journal-{hour}-{process}{'-late' * is_late}.jsonl.gz"
        items = [
            {
                "at": now_ms,
                "tx": tx,
                "version": entry.version,
                "before": entry.before,
                "fence": entry.fence,
                "kind": entry.kind,
                "extra": entry.extra,
                "deltas": entry.deltas,
            }
            for tx, entries in changes.items()
            for entry in entries
        ]
        with self._locked():
            _append(path, _batch(items))

    def erase(self, tx_ids: Collection[str]) -> list[Path]:
        """Take the payloads of these out of every file; the files that cannot be read to their end.

        Repeating it changes nothing. A crash leaves a file as it was, or without them.
        """
        unreadable: list[Path] = []
        if not self.folder.is_dir():
            return unreadable
        with self._locked():
            for leftover in self.folder.glob(f"*{_NEW}"):
                leftover.unlink()
        for path in sorted(self.folder.glob("journal-*.jsonl.gz")):
            with self._locked():
                if not _erase_from(path, frozenset(tx_ids)):
                    unreadable.append(path)
        return unreadable

    def _make_folder(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True, mode=0o700)

    @contextmanager
    def _locked(self) -> Iterator[None]:
        """No other process adds to a file or writes one anew until this is over."""
        lock = os.open(self.folder, os.O_RDONLY)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield
        finally:
            os.close(lock)

    def entries(self) -> Iterator[tuple[str, Entry]]:
        """Everything that is there, each entry once, in the order in which it was written."""
        seen: set[tuple[str, int, int, int]] = set()
        paths = sorted(self.folder.glob("journal-*.jsonl.gz"))
        for _, of_the_hour in groupby(paths, key=lambda path: path.name.split("-")[1]):
            for item in heapq.merge(*map(_items, of_the_hour), key=lambda item: item["at"]):
                name = (item["tx"], item["version"], item["before"], item["fence"])
                if name not in seen:
                    seen.add(name)
                    yield item["tx"], _entry(item)


def _batch(items: Sequence[Mapping[str, Any]]) -> bytes:
    return gzip.compress("".join(f"{encode(item)}\n" for item in items).encode())


def _owner_only(path: str, flags: int) -> int:
    return os.open(path, flags, _OWNER_ONLY)


def _erase_from(path: Path, tx_ids: frozenset[str]) -> bool:
    """Whether the file has no payload of them any more; not known of one that is damaged."""
    try:
        items = list(_items(path, strict=True))
    except gzip.BadGzipFile:
        return False
    if not any(item["tx"] in tx_ids and (item["extra"] or item["deltas"]) for item in items):
        return True
    left = [{**i, "extra": "", "deltas": []} if i["tx"] in tx_ids else i for i in items]
    new = path.with_name(f"{path.name}{_NEW}")
    with open(new, "wb", opener=_owner_only) as file:
        file.write(_batch(left))
        file.flush()
        os.fsync(file.fileno())
    reach("erase.before_rename")
    new.replace(path)
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)
    return True


def _append(path: Path, batch: bytes) -> None:
    with open(path, "ab", buffering=0, opener=_owner_only) as file:
        whole = file.tell()
        try:
            if file.write(batch) != len(batch):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))
            os.fsync(file.fileno())
        except OSError:
            # Half a batch would hide all those after it.
            file.truncate(whole)
            raise


def _entry(item: Mapping[str, Any]) -> Entry:
    head = (item["version"], item["before"], item["fence"], item["kind"])
    return Entry(*head, "\n".join(item["deltas"]), item["extra"])


def _items(path: Path, *, strict: bool = False) -> Iterator[dict[str, Any]]:
    try:
        with gzip.open(path, "rt", encoding="utf-8") as file:
            for line in file:
                if line.endswith("\n"):
                    yield json.loads(line)
    except EOFError:
        # The last batch was cut off in the middle; it is in SQL or still in Redis.
        return
    except gzip.BadGzipFile as error:
        # Cut off in the first bytes of a batch, or damaged.
        if strict:
            raise
        log.warning("%s cannot be read to its end: %s", path, error)
