"""The journal in files of its own, outside the database: a last resort that costs little.

One file per process and hour, gzip, one JSON object a line. Each batch is a gzip member of its
own, so that a file which was cut off can be read up to its last whole batch. A batch may be
there twice, after a crash between SQL and Redis; entries are named by transaction and version.
"""

from __future__ import annotations

import gzip
import json
import os
import socket
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Self

from datp_tasks.model.journal import Entry
from datp_tasks.model.payload import encode
from datp_tasks.settings import Settings


class JournalFiles:
    def __init__(self, folder: Path) -> None:
        self._folder = folder

    @classmethod
    def of(cls, settings: Settings) -> Self | None:
        return cls(Path(settings.journal_dir)) if settings.journal_dir else None

    def append(self, changes: Mapping[str, Sequence[Entry]]) -> None:
        """Add a batch and have the disk confirm it."""
        self._folder.mkdir(parents=True, exist_ok=True)
        hour = datetime.now(UTC).strftime("%Y%m%dT%H")
        path = self._folder / f"journal-{hour}-{socket.gethostname()}-{os.getpid()}.jsonl.gz"
        lines = [
            encode(
                {
                    "tx": tx,
                    "version": entry.version,
                    "before": entry.before,
                    "fence": entry.fence,
                    "kind": entry.kind,
                    "extra": entry.extra,
                    "deltas": entry.deltas,
                }
            )
            for tx, entries in changes.items()
            for entry in entries
        ]
        with path.open("ab") as file:
            file.write(gzip.compress("".join(f"{line}\n" for line in lines).encode()))
            file.flush()
            os.fsync(file.fileno())

    def entries(self) -> Iterator[tuple[str, Entry]]:
        """Everything that is there, each entry once, in the order in which it was written."""
        seen: set[tuple[str, int, int]] = set()
        for path in sorted(self._folder.glob("journal-*.jsonl.gz")):
            for line in _lines(path):
                item = json.loads(line)
                name = (item["tx"], item["version"], item["before"])
                if name in seen:
                    continue
                seen.add(name)
                yield (
                    item["tx"],
                    Entry(
                        item["version"],
                        item["before"],
                        item["fence"],
                        item["kind"],
                        "\n".join(item["deltas"]),
                        item["extra"],
                    ),
                )


def _lines(path: Path) -> Iterator[str]:
    try:
        with gzip.open(path, "rt", encoding="utf-8") as file:
            for line in file:
                if line.endswith("\n"):
                    yield line
    except EOFError:
        # The last batch was cut off in the middle; it is in SQL or still in Redis.
        return
