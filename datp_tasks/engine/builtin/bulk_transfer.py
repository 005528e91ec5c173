"""`util/bulk-transfer`: waits until each transfer of a bulk has ended, and reports on all of them.

For pipelines of bulk transfers (docs/timeouts.md), which put the transfers into the input. No
params. The output is the input with `state`, `counts`, and what became of each transfer.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from datp_tasks.engine.builtin.params import mistakes_in, schema_of
from datp_tasks.engine.registry import step
from datp_tasks.model.bulk_transfer import (
    GONE,
    STEP_TYPE,
    bulk_state,
    counted,
    ids_of,
    status_without,
    transfers_of,
    tx_id_of,
)
from datp_tasks.model.outcome import Fail, Sleep

if TYPE_CHECKING:
    from datp_tasks.engine.context import StepContext

#: How soon it looks what became of them, and how much later each time. A transfer in doubt may wait
#: for days, and each look is rows in the journal.
LOOK_FIRST_S = 0.5
LOOK_S_MAX = 60.0


@step(
    STEP_TYPE,
    description="Waits until each transfer of a bulk has ended, and reports on all of them.",
    parameters=schema_of({}),
    default={},
)
def bulk_transfer(ctx: StepContext, data: dict[str, Any]) -> dict[str, Any] | Sleep:
    transfers = transfers_of(data)
    if not transfers:
        raise Fail("there are no transfers: this pipeline is started as a bulk transfer")
    found = ctx.standing_of(ids_of(transfers))
    if found is None or any(not each.status.is_final for each in found.values()):
        return Sleep(seconds=min(LOOK_S_MAX, LOOK_FIRST_S * 2 ** min(ctx.sleeps, 10)))
    ended = {tx_id: str(each.status) for tx_id, each in found.items()}
    for each in transfers:
        # Why one was refused is long, and in the input: a report must fit into its limit.
        each.pop("problem", None)
        tx_id = tx_id_of(each)
        each["status"] = ended.get(tx_id, GONE) if tx_id else status_without(each)
    statuses = [each["status"] for each in transfers]
    report = {"state": bulk_state(statuses, is_over=True), "counts": counted(transfers)}
    return {**data, **report, "transfers": transfers}


@bulk_transfer.check
def params_ok(params: Mapping[str, Any]) -> list[str]:
    return mistakes_in(params, {})
