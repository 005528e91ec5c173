"""How a run ends, as the record takes it."""

from __future__ import annotations

from typing import Any

from datp_tasks.engine.decide import Pipelines
from datp_tasks.engine.run import Run
from datp_tasks.model.payload import Json
from datp_tasks.model.search_attributes import attributes_of
from datp_tasks.model.status import Status
from datp_tasks.record.record_types import Final


def ending_of(run: Run) -> Any:
    assert run.state.ending is not None
    return run.state.ending


def final_of(run: Run, pipelines: Pipelines) -> Final:
    ending = ending_of(run)
    return Final(
        tx_id=run.tx_id,
        fence=run.fence,
        status=Status(ending.status),
        output_json=_output_json(run, ending.output),
        note=ending.note or None,
        progress_json=run.progress,
        trace=run.fields.get("trace", ""),
        attributes=_attributes(run, ending.output, pipelines),
    )


def _output_json(run: Run, output: Json | None) -> str | None:
    if output is run.state.data:
        return run.data_json
    return None if output is None else run.rest_json(output)


def _attributes(run: Run, output: Any, pipelines: Pipelines) -> tuple[tuple[str, str], ...]:
    """What its pipeline wants it to be found by, of its output; nothing of what rests sealed."""
    if output is None or run.edge is not None:
        return ()
    root = run.state.stack[0]
    search = pipelines.version(root.pipeline, root.version).search
    return attributes_of(search, "output", output) if search else ()
