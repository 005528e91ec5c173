"""What is sent to a transaction from outside: a switch, a wake-up, a cancel.

SQL has a signal before Redis does, so that it is repeated should Redis lose it. A transaction
that is not in Redis is placed there first.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

from datp_tasks.bells.ringer import Ringer
from datp_tasks.errors import (
    NoReturn,
    SwitchInvalid,
    TransactionError,
    TransactionFinal,
    TransactionMoved,
    TransactionUnknown,
)
from datp_tasks.failpoints import reach
from datp_tasks.live import store
from datp_tasks.live.keys import shard_of_tx
from datp_tasks.live.live_types import Bell, Claimed, Refused
from datp_tasks.live.store import LiveStore
from datp_tasks.model.actor import Actor
from datp_tasks.model.notes import clean_note
from datp_tasks.model.state import PointKind
from datp_tasks.model.status import Status
from datp_tasks.model.stop_request import StopRequest
from datp_tasks.model.switch import switch_json
from datp_tasks.process_name import unique_name
from datp_tasks.record.database import translate_outage
from datp_tasks.record.operator_actions import note_action
from datp_tasks.record.points import Points, StopRecorded
from datp_tasks.record.record_types import Precondition
from datp_tasks.record.signals import CANCEL, Note, SeenRow, Signal
from datp_tasks.record.transactions import Record
from datp_tasks.transactions.locate import Locator, is_missing, overlaid
from datp_tasks.transactions.rebuild_lost import Rebuilder
from datp_tasks.transactions.stop import StopAnswer, stop

T = TypeVar("T")

#: Of a cancel of many: a process is known to live for longer than these take.
BEAT_EVERY = 100

#: Why a cancel is refused, by the kind of point that came first.
NOT_CANCELLED = {
    "final": "{tx_id} has passed its point of no return and cannot be cancelled: "
    "it can only finish",
    "forward": "{tx_id} was forwarded and cannot be cancelled until the other system has answered",
}


@dataclass(frozen=True, slots=True)
class Sight:
    """A transaction as it was when its caller's condition held.

    Redis must have it so when its script runs, SQL when the signal is committed. Only a claim
    raises the fence in Redis: if status and fence are the same, nothing happened in between.
    """

    live: str = ""
    row: SeenRow | None = None


#: Without a condition.
ANY = Sight()


class SignalSender:
    def __init__(
        self,
        *,
        live: LiveStore,
        record: Record,
        rebuilder: Rebuilder,
        ringer: Ringer,
        locator: Locator,
    ) -> None:
        self._live = live
        self._record = record
        self._rebuilder = rebuilder
        self._ringer = ringer
        self._locator = locator
        self._points = Points(record.engine, record.clock)
        self._node = f"client-{unique_name()}"

    def set_switch(
        self,
        tx_id: str,
        name: str,
        value: bool | int | float | str | None,
        *,
        by: Actor | None = None,
        only_if: Precondition | None = None,
        reason: str = "",
    ) -> bool:
        """True if that woke the transaction. None removes the switch. The audit has the reason."""
        signal = Signal(_known(tx_id), name, switch_json(name, value))
        sight = self._seen(tx_id, only_if)
        note = _note(
            by, "switch", tx_id, f"{name} = {value!r:.100}" + (f": {reason}" if reason else "")
        )
        with self._kept_unless_refused(signal, note, sight):
            answer = self._sent(
                tx_id,
                lambda: self._live.set_switch(tx_id, name, signal.value, seen=sight.live),
                signal,
            )
            if isinstance(answer, Refused) and answer.word == "TOO_MANY":
                limit = store.SWITCHES_MAX
                raise SwitchInvalid(f"{tx_id} has {limit} switches already; no more are allowed")
            return self._woken(answer, "SET", "NO_CHANGE")

    def wake(
        self,
        tx_id: str,
        *,
        by: Actor | None = None,
        only_if: Precondition | None = None,
        reason: str = "",
    ) -> bool:
        """False if it does not sleep. The audit has the reason."""
        sight = self._seen(_known(tx_id), only_if)
        if note := _note(by, "wake", tx_id, reason or None):
            with translate_outage(), self._record.engine.begin() as connection:
                note(connection)
        answer = self._sent(
            tx_id, lambda: self._live.wake_many([tx_id], only_due=False, seen=sight.live)[0]
        )
        is_woken = self._woken(answer, "NOT_SLEEPING")
        if isinstance(answer, Refused) and Status(answer.found).is_final:
            raise TransactionFinal(f"{tx_id} has ended: {answer.found}")
        return is_woken

    def cancel(
        self,
        tx_id: str,
        reason: str,
        *,
        by: Actor | None = None,
        only_if: Precondition | None = None,
    ) -> None:
        """At once if nothing has begun, else after its current step."""
        sight = self._seen(_known(tx_id), only_if)
        request = StopRequest.cancel(clean_note(reason) or "cancelled")
        signal = Signal(tx_id, CANCEL, request.to_text())
        note = _note(by, "cancel", tx_id, reason)
        # The signal first: should this process die next, the reconciler asks in its place.
        with self._kept_unless_refused(signal, note, sight):
            self._ask_to_stop(signal, request, sight)

    def cancel_many(
        self, tx_ids: Sequence[str], reason: str, *, note: Note | None = None
    ) -> dict[str, TransactionError]:
        """The same for many; those that refuse, also because they have ended, with the reason.

        One commit keeps all of it, so a process that dies on the way leaves the rest to the
        reconciler.
        """
        request = StopRequest.cancel(clean_note(reason) or "cancelled")
        signals = [Signal(_known(tx_id), CANCEL, request.to_text()) for tx_id in tx_ids]
        with translate_outage():
            before = self._rebuilder.signals.add_many(tx_ids, CANCEL, request.to_text(), note)
        reach("bulk_cancel.after_sql")
        with translate_outage():
            recorded = self._points.ask_many_to_stop(tx_ids, request)
        refused: dict[str, TransactionError] = {}
        for number, signal in enumerate(signals):
            tx_id = signal.tx_id
            if number % BEAT_EVERY == 0:
                self._live.beat(self._node)
            try:
                with (
                    self._withdrawn_if_refused(signal, before.get(tx_id)),
                    self._taken_back_if_refused(tx_id, request, recorded[tx_id]),
                ):
                    self._send_stop(signal, request, ANY)
            except TransactionError as error:
                refused[tx_id] = error
        return refused

    def asked_to_stop(self, tx_ids: Sequence[str]) -> set[str]:
        """Those of which a cancel is kept and recorded."""
        with translate_outage():
            return self._rebuilder.signals.asked_to_stop(tx_ids)

    def _ask_to_stop(self, signal: Signal, request: StopRequest, sight: Sight) -> None:
        with self._recorded_unless_refused(signal.tx_id, request, sight):
            # Known as a node, so that the reaper notices should this process die half-way.
            self._live.beat(self._node)
            self._send_stop(signal, request, sight)

    def _send_stop(self, signal: Signal, request: StopRequest, sight: Sight) -> None:
        tx_id = signal.tx_id

        def ask() -> StopAnswer:
            with translate_outage():
                return stop(self._record, self._live, tx_id, request, self._node, sight.live)

        answer = self._sent(tx_id, ask, signal)
        if not isinstance(answer, Claimed):
            self._woken(answer, "ASKED")

    def _seen(self, tx_id: str, only_if: Precondition | None) -> Sight:
        """The transaction as of now, if it is as the caller wants it; else TransactionMoved."""
        if only_if is None:
            return ANY
        # One that has left Redis is brought back; then Redis is read before SQL.
        self._locator.status(tx_id)
        fields = self._live.named_many([tx_id], ("status", "fence"))[0]
        row = self._locator.summary(tx_id)
        summary = overlaid(row, fields)
        if not only_if(summary):
            raise TransactionMoved(f"{tx_id} is not as it was seen any more: {summary.status}")
        if not fields and row.is_final:
            raise TransactionFinal(f"{tx_id} has ended: {row.status}")
        if not fields:
            raise TransactionError(f"{tx_id} is on its way into memory; try again in a few seconds")
        return Sight(f"{fields['status']}:{fields['fence']}", SeenRow(row.sequence, row.fence))

    @contextmanager
    def _recorded_unless_refused(
        self, tx_id: str, request: StopRequest, sight: Sight
    ) -> Iterator[None]:
        """The row decides between a cancel and a point of no return.

        Under a condition Redis comes first: a worker that sees the cancel in the row rolls back,
        also if the script then says that the condition does not hold any more. A point that is
        passed in between wins when the worker confirms the cancel.
        """
        if sight is not ANY:
            with translate_outage():
                point = self._points.bound([tx_id]).get(tx_id)
            _raise_if_bound(tx_id, point)
            yield
            with translate_outage():
                self._points.ask_to_stop(tx_id, request)
            return
        with translate_outage():
            recorded = self._points.ask_to_stop(tx_id, request)
        with self._taken_back_if_refused(tx_id, request, recorded):
            yield

    @contextmanager
    def _taken_back_if_refused(
        self, tx_id: str, request: StopRequest, recorded: StopRecorded
    ) -> Iterator[None]:
        _raise_if_bound(tx_id, recorded.point)
        reach("cancel.after_record")
        try:
            yield
        except TransactionError:
            if recorded.is_new:
                with translate_outage():
                    self._points.take_back(tx_id, request)
            raise

    @contextmanager
    def _kept_unless_refused(
        self, signal: Signal, note: Note | None, sight: Sight
    ) -> Iterator[None]:
        """SQL first: from here on it is repeated, should Redis lose it."""
        signals = self._rebuilder.signals
        with translate_outage():
            before = signals.add(signal, note, seen=sight.row)
        reach("signal.after_sql")
        with self._withdrawn_if_refused(signal, before):
            yield

    @contextmanager
    def _withdrawn_if_refused(self, signal: Signal, before: Signal | None) -> Iterator[None]:
        try:
            yield
        except (TransactionError, SwitchInvalid):
            with translate_outage():
                self._rebuilder.signals.withdraw(signal, before)
            raise

    def _sent(self, tx_id: str, send: Callable[[], T], signal: Signal | None = None) -> T:
        """The answer; of one that is not in Redis, once it is there."""
        answer = send()
        if not is_missing(answer):
            return answer
        with translate_outage():
            bells = self._rebuilder.place(tx_id, signal)
        answer = send()
        # Rung only now: no worker may be quicker than the signal.
        if not isinstance(answer, Claimed):
            self._ringer.ring(bells)
        return answer

    def _woken(self, answer: Bell | Refused, *fine: str) -> bool:
        """Whether a bell must be rung, and was; False for answers that are fine without one."""
        if isinstance(answer, Bell):
            self._ringer.ring([answer])
            return True
        self._raise_if_impossible(answer, *fine)
        return False

    def _raise_if_impossible(self, refused: Refused, *fine: str) -> None:
        tx_id = refused.tx_id
        if refused.word in fine:
            return
        if refused.word == "MOVED":
            raise TransactionMoved(f"{tx_id} is not as it was seen any more: {refused.found}")
        if refused.word == "PARKED":
            raise TransactionError(f"{tx_id} is in doubt; that must be resolved first")
        if refused.word == "FINAL":
            raise TransactionFinal(f"{tx_id} has ended: {refused.found}")
        summary = self._locator.summary(tx_id)
        if summary.is_final:
            raise TransactionFinal(f"{tx_id} has ended: {summary.status}")
        raise TransactionError(f"{tx_id} is on its way into memory; try again in a few seconds")


def _note(by: Actor | None, action: str, tx_id: str, reason: str | None) -> Note | None:
    """For the audit, who sent it; None for programs of this installation, which have no key."""
    if by is None:
        return None
    return partial(
        note_action, actor=by, action=f"transaction.{action}", subject=tx_id, reason=reason
    )


def _raise_if_bound(tx_id: str, point: PointKind | None) -> None:
    if point is not None:
        raise NoReturn(NOT_CANCELLED[point].format(tx_id=tx_id))


def _known(tx_id: str) -> str:
    if not shard_of_tx(tx_id):
        raise TransactionUnknown(f"there is no transaction {tx_id!r}")
    return tx_id
