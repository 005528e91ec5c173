"""Entries of the journal: what led a transaction from one version to the next.

An entry names the version before it, so the entries of a transaction form a chain. Where Redis
fell back in time and a transaction went on from an older version, the chain forks; the branch
that lives is the one that the last entry belongs to.

As text an entry is a line that begins with `@`, and one line of JSON for each delta:

    @<version> <version before> <fence> <kind> <extra, with line breaks escaped>
    {"k":"done","out":{…}}
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from typing import NamedTuple

#: Whether a text begins as that of an entry, with its version, the one before, fence and kind: what
#: does not would become a part of the entry before it. Versions are milliseconds, of 13 digits, and
#: what has 18 fits into a column. [0-9] takes half the time of \d, which knows the digits of all
#: scripts.
is_entry = re.compile(r"@([0-9]{1,18}) ([0-9]{1,18}) [0-9]{1,18} \S+ ").match
_ESCAPED = re.compile(r"\\[\\n]")


class Entry(NamedTuple):
    version: int
    #: The version before, 0 for the first.
    before: int
    fence: int
    kind: str
    #: Deltas of the state, JSON, one a line.
    lines: str
    #: What else the kind needs: a wake time, a switch, a reason, a status.
    extra: str = ""

    def to_text(self) -> str:
        extra = self.extra.replace("\\", "\\\\").replace("\n", "\\n") if self.extra else ""
        head = f"@{self.version} {self.before} {self.fence} {self.kind} {extra}"
        return f"{head}\n{self.lines}" if self.lines else head

    @classmethod
    def from_text(cls, text: str) -> Entry:
        head, _, lines = text.partition("\n")
        try:
            version, before, fence, kind, extra = head[1:].split(" ", 4)
            return cls(int(version), int(before), int(fence), kind, lines, _unescaped(extra))
        except ValueError as error:
            raise not_an_entry(head) from error

    def without_payload(self) -> Entry:
        """What happened and when, but nothing of what it was about."""
        return self._replace(lines="", extra="")

    @property
    def deltas(self) -> list[str]:
        return self.lines.split("\n") if self.lines else []


def place_of(text: str) -> tuple[int, int]:
    """The version of an entry and the one before it, from its text. The archiver passes texts on
    as they are, and only needs to know where they belong."""
    found = is_entry(text)
    if found is None:
        raise not_an_entry(text)
    version, before = found.groups()
    return int(version), int(before)


class BrokenJournal(Exception):
    """The journal of a transaction does not lead to a state; the message says where it breaks."""


def not_an_entry(text: str) -> BrokenJournal:
    return BrokenJournal(f"not an entry: {text[:80]!r}")


def texts_of(text: str) -> list[str]:
    """Those of the entries that a row holds."""
    return [f"@{part}" for part in text.removeprefix("@").split("\n@")]


def entries_from_text(text: str) -> list[Entry]:
    return list(map(Entry.from_text, texts_of(text)))


def _unescaped(text: str) -> str:
    if "\\" not in text:
        return text
    return _ESCAPED.sub(lambda found: "\n" if found.group() == "\\n" else "\\", text)


def chained_hash(previous: str, tx_id: str, text: str) -> str:
    """Depends on everything before it, so that nothing can be changed or taken out unnoticed."""
    return hashlib.sha256(f"{previous}\n{tx_id}\n{text}".encode()).hexdigest()


def entries_to_text(entries: Sequence[Entry]) -> str:
    return "\n".join(entry.to_text() for entry in entries)


def content_hash(text: str) -> str:
    """What stays of entries that are erased: a copy can be shown to be the one."""
    return hashlib.sha256(text.encode()).hexdigest()


def erased_hash(previous: str, tx_id: str, kept: tuple[str, str, str]) -> str:
    """Chains erased rows by what is left of them: chained hash, content hash, entries."""
    return chained_hash(previous, tx_id, "\n".join(kept))


def living_branch(entries: Sequence[Entry], *, since: int = 0) -> list[Entry]:
    """The entries that lead from version `since` to the last one, in order; no gap is allowed.

    What an entry follows was recorded before it: a version that was given twice, because Redis
    fell back in time and its clock as well, means the one that came last before the entry.
    """
    branch: list[Entry] = []
    version = entries[-1].version if entries else since
    for entry in reversed(entries):
        if version > since and entry.version == version:
            branch.append(entry)
            version = entry.before
    if version > since:
        raise BrokenJournal(f"the entry that led to version {version} is missing")
    if version != since:
        raise BrokenJournal(f"no entry follows version {since}")
    branch.reverse()
    return branch
