"""Writing down what became of a round: at most one commit for parking, one for ending, and one
round trip to Redis for everything.

Transactions that go on in this process are checkpointed; those that leave are handed over, put
to sleep, parked or ended. Nothing final reaches Redis before SQL has decided.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass

from datp_tasks.bells.ringer import Ringer
from datp_tasks.engine.decide import Decider, Follow, Move, Next, Park, Rest, Stay, close
from datp_tasks.engine.finals import ending_of, final_of
from datp_tasks.engine.late_success import LateSuccesses
from datp_tasks.engine.points_of_no_return import PointsOfNoReturn
from datp_tasks.engine.run import Run
from datp_tasks.engine.state_cache import StateCache
from datp_tasks.engine.worker_parts import Stores, ThisNode
from datp_tasks.engine.writes import Answered, JointOrder, Order, Passage, Writes
from datp_tasks.failpoints import reach
from datp_tasks.live.live_types import Bell, flat_to_dict
from datp_tasks.live.scripts import Reply
from datp_tasks.model.plan import Action, Position
from datp_tasks.model.state import BEGIN, delta_lines, ending
from datp_tasks.model.status import Status
from datp_tasks.record.record_types import Mark
from datp_tasks.record.sql_errors import DBAPIError, OperationalError
from datp_tasks.transactions.follow_record import follow_summaries

log = logging.getLogger("datp.hop")

#: What a checkpoint answers if no request to stop has come and no switch was set.
NO_NEWS = ["OK"]


@dataclass(frozen=True, slots=True)
class StopRules:
    """What holds where a stop or an expiry meets a step that is done: its point of no return, and
    a success that is late."""

    points: PointsOfNoReturn
    late: LateSuccesses


class Committer:
    def __init__(
        self,
        *,
        this: ThisNode,
        stores: Stores,
        ringer: Ringer,
        decider: Decider,
        cache: StateCache,
        stop_rules: StopRules,
    ) -> None:
        self._node = this.name
        self._registry = this.steps
        self._groups = this.groups
        self._own_messages = this.own_messages
        self._live = stores.live
        self._record = stores.record
        self._pipelines = stores.pipelines
        self._ringer = ringer
        self._decider = decider
        self._cache = cache
        self._points = stop_rules.points
        self._late = stop_rules.late

    def commit(self, moves: Sequence[tuple[Run, Move]], *, may_go_on: bool = True) -> list[Run]:
        """Write all moves; the runs that go on in this process."""
        staying: list[Run] = []
        while moves:
            writes = Writes(may_go_on)
            for run, move in moves:
                self._sort(run, move, writes)
            writes.joint_orders += self._go_on(writes.passages)
            self._park(writes)
            self._end(writes.finals, writes)
            if writes.ended:
                writes.joint_orders.append(self._finish(writes.ended))
            self._follow_sql(writes.refused, writes)
            self._send(writes)
            staying += writes.staying
            # A cancel, a switch or an expiry that came meanwhile makes another small round.
            moves = writes.again
        return staying

    def _sort(self, run: Run, move: Move, writes: Writes) -> None:
        match move:
            case Next():
                self._next(run, move, writes)
            case Stay():
                writes.staying.append(run)
            case Rest():
                writes.orders.append(self._rest(run, move))
            case Park(note=note):
                writes.parked.append((run, note))
            case Follow():
                writes.refused.append(run)

    def _is_own_message(self, before: Action, action: Action) -> bool:
        """Whether the step is to have a message of its own, and has not just got it."""
        own = self._own_messages if action.own_message is None else action.own_message
        return own and (action.path != before.path or action.kind != before.kind)

    def _next(self, run: Run, move: Next, writes: Writes) -> None:
        before = run.action
        action = run.plan(self._pipelines.version)
        if action.kind == "end":
            writes.finals.append(run)
            return
        if run.is_overdue and action.kind == "run":
            writes.orders.append(self._rest(run, self._decider.wait_for_handler()))
            return
        snapshot = _is_due(before, run)
        passage = writes.passage(before, action, run.group, snapshot)
        if passage is None:
            passage = self._passage(before, action, run.group, snapshot=snapshot)
            writes.passages.append(passage)
        if passage.is_here and writes.may_go_on and not move.alone:
            if passage.opens:
                run.change(BEGIN)
            passage.runs.append(run)
        else:
            order = self._hand_over(
                run,
                action.position(move.priority),
                known=passage.is_known,
                snapshot=snapshot,
                alone=move.alone,
            )
            writes.orders.append(order)

    def _passage(self, before: Action, action: Action, group: str, *, snapshot: bool) -> Passage:
        known = self._registry.find(action.step_type)
        is_near = action.group == group or action.group in self._groups
        return Passage(
            before=before,
            action=action,
            group=group,
            snapshot=snapshot,
            is_known=known is not None,
            is_here=bool(known) and is_near and not self._is_own_message(before, action),
            opens=known is not None and (action.kind == "undo" or not known.is_unsafe),
        )

    # What each script call and its answer mean.

    def _go_on(self, passages: Sequence[Passage]) -> list[JointOrder]:
        """Checkpoints of those that go on here: one order for all that come to the same place."""
        together: dict[tuple[str, str, bool], tuple[list[Run], list[tuple[str, ...]]]] = {}
        for passage in passages:
            action = passage.action
            to = action.step_type, action.place, passage.snapshot
            runs, moved = together.setdefault(to, ([], []))
            runs += passage.runs
            for run in passage.runs:
                fields: tuple[str, ...] = ()
                if run.mid_way:
                    fields = ("unsafe", "")
                    run.mid_way = False
                if action.group != run.group:
                    run.group = action.group
                    fields += ("group", action.group)
                moved.append((run.tx_id, str(run.fence), delta_lines(run.take_deltas()), *fields))
        checkpoints = self._live.calls_checkpoint
        return [
            (checkpoints(moved, step_type, place, snapshot=snapshot), self._gone_on, runs)
            for (step_type, place, snapshot), (runs, moved) in together.items()
            if runs
        ]

    def _gone_on(self, answered: Answered, writes: Writes) -> None:
        for run, reply in answered:
            if reply == NO_NEWS or self._stays(run, reply, writes):
                writes.staying.append(run)

    def _stays(self, run: Run, reply: Reply, writes: Writes) -> bool:
        """Whether it goes on: its checkpoint tells of a stop or a switch, or was refused."""
        if reply[0] != "OK":
            self._lost(run, reply)
            return False
        _, request, switch_seq = reply
        if int(switch_seq) > run.switch_seq:
            writes.refresh.append(run)
        if request and run.state.ending is None and self._points.may_stop(run, request):
            self._decider.stop(run)
            writes.again.append((run, Next()))
            return False
        return True

    def _hand_over(
        self,
        run: Run,
        to: Position,
        *,
        known: bool,
        snapshot: bool,
        alone: bool = False,
    ) -> Order:
        close(run)
        held, state_json = run.take_pending(), run.state_json()

        def answered(run: Run, reply: Reply, writes: Writes) -> None:
            if reply[0] != "OK":
                return self._lost(run, reply)
            self._cache.put(run.tx_id, (reply[2], run.fence), run.state, state_json, run.edge)
            where = (to.group, to.step_type, to.place, to.priority)
            bell = Bell(run.tx_id, reply[1], *where, alone, run.fields.get("owner", ""))
            if known or to.group != run.group:
                writes.bells.append(bell)
            else:
                # Ringing at once would only bring it back here; the reconciler tries later.
                writes.unknown.append(bell)
            return None

        call = self._live.call_hand_over(held, self._node, state_json, to, snapshot=snapshot)
        return call, answered, run

    def _rest(self, run: Run, rest: Rest) -> Order:
        held, state_json = run.take_pending(), run.state_json()

        def answered(run: Run, reply: Reply, writes: Writes) -> None:
            match reply[0]:
                case "OK":
                    version = (reply[2], run.fence)
                    self._cache.put(run.tx_id, version, run.state, state_json, run.edge)
                case "AWAKE":
                    run.refresh(flat_to_dict(reply[1]))
                    run.pending = list(held.deltas)
                    writes.again.append((run, Next()))
                case "STOP":
                    run.pending = list(held.deltas)
                    if self._points.may_stop(run, reply[1]):
                        self._decider.stop(run)
                        writes.again.append((run, Next()))
                    else:
                        writes.again.append((run, self._decider.sleep_on(run, rest)))
                case _:
                    self._lost(run, reply)

        call = self._live.call_sleep(
            held,
            self._node,
            state_json,
            run.action.position(),
            sleep_ms=int(rest.seconds * 1_000),
            switch=rest.switch or "",
            seen=run.switch_seq,
            # Before anything is undone it must be known what an interrupted step did.
            heed_stop=run.state.ending is None and not run.state.open and not run.ignores_stop,
        )
        return call, answered, run

    def _park(self, writes: Writes) -> None:
        """SQL first: after a loss of Redis, what is in doubt must not run again."""
        if not writes.parked:
            return
        marks = [Mark(run.tx_id, run.fence, note) for run, note in writes.parked]
        marked = self._record.mark_many(marks, Status.IN_DOUBT)
        reach("hop.after_park_mark")
        for run, note in writes.parked:
            if run.tx_id not in marked:
                writes.refused.append(run)
                continue
            log.error("%s is parked in doubt: %s", run.tx_id, note, extra=run.about("tx.parked"))
            run.restate_error()
            call = self._live.call_park(run.take_pending(), self._node, run.state_json(), note)
            writes.orders.append((call, _parked, run))

    def _lost(self, run: Run, reply: Reply) -> None:
        about = run.about("tx.lost")
        log.warning("%s is another worker's now (%s); dropped", run.tx_id, reply[1], extra=about)

    # The end.

    def _end(self, runs: list[Run], writes: Writes) -> None:
        if not runs:
            return None
        reach("hop.before_final")
        try:
            won = self._record.finish_many([final_of(run, self._pipelines) for run in runs])
        except OperationalError as error:
            log.warning("PostgreSQL is unavailable; %d end later: %s", len(runs), error)
            return self._hand_back(runs)
        except DBAPIError as error:
            return self._end_one_by_one(runs, error, writes)
        reach("hop.after_final")
        for run in runs:
            (writes.ended if run.tx_id in won else writes.refused).append(run)
        return None

    def _finish(self, ended: Sequence[Run]) -> JointOrder:
        calls = self._live.calls_finish([_end_of(run) for run in ended], self._node)
        return calls, _finished, ended

    def _end_one_by_one(self, runs: list[Run], error: DBAPIError, writes: Writes) -> None:
        """SQL refuses a value: find out whose, and let the neighbours end."""
        if len(runs) > 1:
            for run in runs:
                self._end([run], writes)
            return
        run, kind = runs[0], type(error).__name__
        note = run.note_error(f"its ending cannot be stored: {kind}", repr(error.orig))
        log.error("%s: %s: %s", run.tx_id, note, error, extra=run.about("tx.unwritable"))
        parking = Writes(writes.may_go_on)
        parking.parked.append((run, note))
        self._park(parking)
        writes.orders += parking.orders
        writes.refused += parking.refused

    def _hand_back(self, runs: list[Run]) -> None:
        """Back into the queue. An ending is in the state, so only its commit is tried again."""
        calls = []
        for run in runs:
            here = Position(run.group, run.fields.get("stepType", ""), "")
            if run.action.kind != "end":
                here = run.action.position()
                step_type = self._registry.find(run.action.step_type)
                if step_type is None or not step_type.must_find_out:
                    # Of the others, what an earlier try did must be found out first.
                    close(run)
            held = run.take_pending()
            calls.append(self._live.call_hand_over(held, self._node, run.state_json(), here))
        self._live.run(calls)

    def _follow_sql(self, lost: Sequence[Run], writes: Writes) -> None:
        """SQL decided otherwise. Where that is final, Redis follows; else a new claim must."""
        if not lost:
            return
        found = {each.tx_id: each for each in self._record.summaries([run.tx_id for run in lost])}
        final = {tx_id: each for tx_id, each in found.items() if each.is_final}
        log.warning("SQL refused %d transactions, %d had ended", len(lost), len(final))
        known = [run for run in lost if run.tx_id in found]
        late = [run for run in known if self._late.is_late(run, found[run.tx_id])]
        turned = self._record.mark_expiring([run.tx_id for run in late]) if late else set()
        for run in late:
            self._late.tell(run, found[run.tx_id])
        follow_summaries(self._live, found.values())
        for run in lost:
            if run.tx_id in turned:
                note = "it was done only after its expiry"
                run.change(ending(Status.EXPIRED, note, None, rollback=True))
                writes.again.append((run, Next()))
        self._hand_back([run for run in lost if run.tx_id not in final.keys() | turned])

    # Sending.

    def _send(self, writes: Writes) -> None:
        orders, joint = writes.orders, writes.joint_orders
        if orders or joint:
            calls = [call for call, _, _ in orders]
            replies = self._live.run([*calls, *(many for many, _, _ in joint)])
            if writes.finals:
                reach("hop.after_finish")
            reach("hop.after_checkpoint")
            for (_, answered, run), reply in zip(orders, replies[: len(orders)], strict=True):
                answered(run, reply, writes)
            for (_, all_answered, runs), found in zip(joint, replies[len(orders) :], strict=True):
                all_answered(zip(runs, found, strict=True), writes)
            self._follow_sql(writes.stale, writes)
        if writes.refresh:
            found = self._live.fields_many([run.tx_id for run in writes.refresh])
            for run, fields in zip(writes.refresh, found, strict=True):
                run.refresh(fields)
        if writes.bells:
            reach("hop.after_hand_over")
            self._ringer.ring(writes.bells)
        for bell in writes.unknown:
            problem = f"no worker of {bell.group} that took it offers the step {bell.step_type}"
            self._live.note_problems([(bell.tx_id, bell.sequence)], problem)


def _parked(run: Run, reply: Reply, writes: Writes) -> None:
    """SQL has marked it: whichever node holds the live one, it does not run."""


def _end_of(run: Run) -> tuple[str, ...]:
    """What the script that ends it takes of it."""
    lines = delta_lines(run.take_deltas())
    return run.tx_id, str(run.fence), ending_of(run).status, lines, run.state_json()


def _finished(answered: Answered, writes: Writes) -> None:
    writes.stale += [run for run, reply in answered if reply[0] == "STALE"]


def _is_due(before: Action, run: Run) -> bool:
    """SQL gets a copy after a step that asks for it, and when a child pipeline has returned."""
    is_asked_for = before.step is not None and before.step.checkpoint
    for delta in run.pending:
        kind = delta["k"]
        if kind == "return" or (is_asked_for and kind == "done"):
            return True
    return False
