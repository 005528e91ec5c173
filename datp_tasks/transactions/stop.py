"""Stopping transactions: what has not begun ends at once and needs no worker.

One that has begun keeps the request in Redis; its worker rolls it back and ends it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from datp_tasks.failpoints import reach
from datp_tasks.live.live_types import Bell, Claimed, Held, Refused
from datp_tasks.live.store import LiveStore
from datp_tasks.model.state import BEGIN, State, apply, ending
from datp_tasks.model.status import Status
from datp_tasks.model.stop_request import StopRequest
from datp_tasks.record.record_types import Final, Mark
from datp_tasks.record.transactions import Record

StopAnswer = Claimed | Bell | Refused
Seized = Sequence[tuple[Claimed, StopRequest]]

LOST_PAST = (
    "Redis has lost what it did, so it may have begun, and is not simply {status}; "
    "a person must decide what became of its first step"
)


def stop(
    record: Record, live: LiveStore, tx_id: str, request: StopRequest, node: str, seen: str = ""
) -> StopAnswer:
    """Claimed: nothing had begun, and it has ended now. Should this process die half-way, the
    reaper takes over from `node`."""
    answer = live.stop(tx_id, request, node, seen=seen)
    if isinstance(answer, Claimed):
        reach("cancel.after_seize")
        end_unstarted(record, live, [answer], {tx_id: request}, node)
    return answer


def end_unstarted(
    record: Record,
    live: LiveStore,
    answers: Sequence[StopAnswer],
    requests: Mapping[str, StopRequest],
    node: str,
) -> set[str]:
    """Commit the ending of those that were seized and let Redis follow; the ids that SQL let
    through.

    The others ended before, belong to another node by now, or are parked: of one that was queued
    anew after a loss of Redis nothing tells that it had not begun.
    """
    seized = [(each, requests[each.tx_id]) for each in answers if isinstance(each, Claimed)]
    if not seized:
        return set()
    reach("seized.before_final")
    finals = [_final(*each) for each in seized if not _has_lost_past(each[0])]
    won = record.finish_many(finals)
    marks = [_mark(*each) for each in seized if _has_lost_past(each[0])]
    marked = record.mark_many(marks, Status.IN_DOUBT)
    reach("seized.after_final")
    calls = []
    for claimed, request in seized:
        if claimed.tx_id in won:
            state = State.from_json(claimed.fields["state"])
            delta = ending(request.status, request.reason, None)
            apply(state, delta)
            held = Held(claimed.tx_id, claimed.fence, (delta,))
            calls.append(live.call_finish(held, node, request.status, state.to_json()))
    live.run(calls)
    _park(live, [each for each in seized if each[0].tx_id in marked], node)
    return won


def _has_lost_past(claimed: Claimed) -> bool:
    return "recreated" in claimed.fields


def _final(claimed: Claimed, request: StopRequest) -> Final:
    return Final(
        tx_id=claimed.tx_id,
        fence=claimed.fence,
        status=request.status,
        output_json=None,
        note=request.reason,
        trace=claimed.fields.get("trace", ""),
        is_begun=False,
    )


def _mark(claimed: Claimed, request: StopRequest) -> Mark:
    return Mark(claimed.tx_id, claimed.fence, LOST_PAST.format(status=request.status))


def _park(live: LiveStore, parked: Seized, node: str) -> None:
    """As one whose worker was lost in its first step. The request stays, for who decides."""
    if not parked:
        return
    held = [Held(claimed.tx_id, claimed.fence, (BEGIN,)) for claimed, _ in parked]
    live.run([live.call_checkpoint(each, ("begun", "1")) for each in held])
    live.stop_many([(claimed.tx_id, request) for claimed, request in parked], node)
    calls = []
    for claimed, request in parked:
        state = State.from_json(claimed.fields["state"])
        apply(state, BEGIN)
        note = LOST_PAST.format(status=request.status)
        nothing_new = Held(claimed.tx_id, claimed.fence)
        calls.append(live.call_park(nothing_new, node, state.to_json(), note))
    live.run(calls)
