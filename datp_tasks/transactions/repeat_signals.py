"""Repeating switches and cancels that SQL has and Redis may have lost."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from datp_tasks.bells.ringer import Ringer
from datp_tasks.live.live_types import Bell
from datp_tasks.live.store import LiveStore
from datp_tasks.model.status import Status
from datp_tasks.model.stop_request import StopRequest
from datp_tasks.record.signals import CANCEL, Signal
from datp_tasks.record.transactions import Record
from datp_tasks.transactions.stop import stop


def repeat_signals(
    signals: Sequence[Signal], *, live: LiveStore, record: Record, ringer: Ringer
) -> None:
    """In the order given; what Redis has of them already is left alone."""
    found = live.fields_many([each.tx_id for each in signals])
    for signal, fields in zip(signals, found, strict=True):
        if not fields or Status(fields["status"]).is_final:
            continue
        if signal.name == CANCEL:
            bell = _stop_again(signal, fields, live, record)
            ringer.ring([bell])
        elif _is_replaced(signal, fields):
            continue
        elif fields.get(f"switch:{signal.name}", ":").partition(":")[2] != signal.value:
            answer = live.set_switch(signal.tx_id, signal.name, signal.value)
            ringer.ring([answer if isinstance(answer, Bell) else None])


def _is_replaced(signal: Signal, fields: Mapping[str, str]) -> bool:
    """Whether a step has put another switch in its place, and Redis has that.

    Its own number tells, which a removed one keeps: other switches may have been set since.
    """
    if signal.replaced_seq is None:
        return False
    number = fields.get(f"switch:{signal.name}", "0:").partition(":")[0]
    return signal.replaced_seq <= int(number)


def _stop_again(
    signal: Signal, fields: Mapping[str, str], live: LiveStore, record: Record
) -> Bell | None:
    if "cancel" in fields or fields["status"] == Status.IN_DOUBT:
        return None
    # No node of this name beats: the reaper takes over should this process be lost in between.
    node = f"again-{signal.tx_id}"
    answer = stop(record, live, signal.tx_id, StopRequest.from_text(signal.value), node)
    return answer if isinstance(answer, Bell) else None
