"""How much CPU time a process has used, as the kernel says in /proc."""

from __future__ import annotations

import os
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path

PROC = Path("/proc")
TICKS_PER_S = os.sysconf("SC_CLK_TCK")
#: Places in /proc/<pid>/stat, counted from the field after the name.
PARENT, OWN, OF_ENDED_CHILDREN = 1, slice(11, 13), slice(13, 15)


@dataclass(frozen=True, slots=True)
class ProcessTime:
    parent: int
    own_s: float
    #: Of children that have ended and were waited for, and of theirs.
    ended_children_s: float


def snapshot() -> dict[int, ProcessTime]:
    """All processes of this machine that can be seen, by their ids."""
    found = {}
    for folder in PROC.iterdir():
        if folder.name.isdigit():
            try:
                stat = (folder / "stat").read_text(encoding="utf-8", errors="replace")
            except OSError:
                continue
            found[int(folder.name)] = _parse(stat)
    return found


def _parse(stat: str) -> ProcessTime:
    # The name is in parentheses and may contain anything.
    fields = stat.rpartition(")")[2].split()
    own, ended = (sum(map(int, fields[part])) for part in (OWN, OF_ENDED_CHILDREN))
    return ProcessTime(int(fields[PARENT]), own / TICKS_PER_S, ended / TICKS_PER_S)


def own_s(seen: dict[int, ProcessTime], pid: int) -> float:
    """Of the process itself, all its threads."""
    return seen[pid].own_s


def below_s(seen: dict[int, ProcessTime], pid: int) -> float:
    """Of all processes below this one, those that have ended included."""
    children: dict[int, list[int]] = defaultdict(list)
    for each, times in seen.items():
        children[times.parent].append(each)
    total, open_ids = seen[pid].ended_children_s, list(children[pid])
    while open_ids:
        each = open_ids.pop()
        total += seen[each].own_s + seen[each].ended_children_s
        open_ids += children[each]
    return total
