"""Ending transactions in which nothing has begun: no worker is needed for that."""

from __future__ import annotations

from collections.abc import Sequence

from datp_tasks.archive.record import Record
from datp_tasks.archive.words import Final
from datp_tasks.failpoints import reach
from datp_tasks.live.store import LiveStore
from datp_tasks.live.words import Claimed, Held
from datp_tasks.model.recall import Recall
from datp_tasks.model.state import State, apply, ending


def end_seized(
    record: Record, live: LiveStore, seized: Sequence[tuple[Claimed, Recall]], node: str
) -> set[str]:
    """Commit their ending and let Redis follow; the ids that SQL let through.

    The others ended before, or belong to somebody else by now.
    """
    reach("seized.before_final")
    finals = [
        Final(
            tx_id=claimed.tx_id,
            fence=claimed.fence,
            status=recall.status,
            output_json=None,
            note=recall.reason,
            trace=claimed.fields.get("trace", ""),
        )
        for claimed, recall in seized
    ]
    won = record.finish_many(finals)
    reach("seized.after_final")
    calls = []
    for claimed, recall in seized:
        if claimed.tx_id in won:
            state = State.from_json(claimed.fields["state"])
            delta = ending(recall.status, recall.reason, None)
            apply(state, delta)
            held = Held(claimed.tx_id, claimed.fence, (delta,))
            calls.append(live.call_finish(held, node, recall.status, state.to_json()))
    live.run(calls)
    return won
