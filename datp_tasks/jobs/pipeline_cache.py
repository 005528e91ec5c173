"""Keep the copies of pipelines in Redis like the record.

Moves:    nothing; writes pipelineH:<name> from SQL.
Knows:    everything it needs is in SQL.
Bound:    the number of pipelines.
Overlap:  harmless: both write the same.
Crash:    the next run does the rest.
"""

from __future__ import annotations

from dataclasses import dataclass

from datp_tasks.pipelines.version_store import PipelineStore


@dataclass(frozen=True, slots=True)
class Result:
    refreshed: int


def run_once(pipelines: PipelineStore) -> Result:
    return Result(refreshed=pipelines.refresh_all())
