"""Do the next parts of audits and erasures that operators have started over HTTP.

Moves:    an erasure takes payloads of ended transactions out of Redis, files and SQL; an audit
          only reads.
Knows:    what SQL says; one that another process works on is passed over.
Bound:    `run_s` for each kind, after which the part that was begun is finished.
Overlap:  one process for each kind, by an advisory lock.
Crash:    the next run repeats the part that was not kept, which is safe.
"""

from __future__ import annotations

from dataclasses import dataclass

from datp_tasks.operator.runs import OperatorRuns


@dataclass(frozen=True, slots=True)
class Result:
    parts: int


def run_once(runs: OperatorRuns, *, run_s: float) -> Result:
    return Result(parts=runs.go_on(run_s=run_s))
