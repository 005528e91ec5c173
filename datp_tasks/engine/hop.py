"""The hop: what one bell does, for a vector of transactions in lockstep.

    claim → admit → commit → [ execute → decide → commit ] … until every transaction has left

All of a vector share each round trip and each SQL commit; each keeps its own fence, checkpoint
and outcome. One that sleeps, ends, hands over or is refused leaves, the others go on.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from datp_tasks.engine.commit import Committer
from datp_tasks.engine.decide import NEXT, STAY, Decider, Move, Park, close
from datp_tasks.engine.doorbell_answers import DoorbellAnswers
from datp_tasks.engine.execute import Executor, Way
from datp_tasks.engine.observer import Observer
from datp_tasks.engine.outcomes import Lost, RecordRefused, Unavailable
from datp_tasks.engine.points_of_no_return import PointsOfNoReturn
from datp_tasks.engine.registry import StepType
from datp_tasks.engine.round import Round, Stuck
from datp_tasks.engine.run import Run
from datp_tasks.engine.state_cache import Kept, StateCache
from datp_tasks.engine.worker_parts import Bells, Stores, ThisNode
from datp_tasks.errors import DatabaseUnavailable, DatpError, SealError
from datp_tasks.failpoints import reach
from datp_tasks.live.live_types import Claimed
from datp_tasks.live.live_types import Refused as NotClaimed
from datp_tasks.live.script_replies import claimed
from datp_tasks.live.scripts import Reply, ScriptCall
from datp_tasks.model.state import BEGIN, delta_json
from datp_tasks.record.database import is_outage
from datp_tasks.record.sql_errors import OperationalError

log = logging.getLogger("datp.hop")

Pairs = Sequence[tuple[str, int]]
Moves = list[tuple[Run, Move]]

_OPENS = delta_json(BEGIN)

#: Ways to execute in which the transactions of a vector share some of the work.
SHARING: frozenset[Way] = frozenset(("vector", "sql", "async"))


@dataclass(frozen=True, slots=True)
class Stages:
    """What a transaction passes through in a hop, and who asks SQL before a point of no return."""

    executor: Executor
    decider: Decider
    committer: Committer
    points: PointsOfNoReturn


class Hop:
    """The engine of one thread; the guard of that thread looks in while a step runs."""

    def __init__(
        self,
        *,
        this: ThisNode,
        stores: Stores,
        bells: Bells,
        stages: Stages,
        cache: StateCache,
        observer: Observer,
    ) -> None:
        self._node = this.name
        self._registry = this.steps
        self._live = stores.live
        self._record = stores.record
        self._pipelines = stores.pipelines
        self._vault = stores.vault
        self._costs = bells.costs
        self._doorbell = DoorbellAnswers(stores.live, bells)
        self._executor = stages.executor
        self._decider = stages.decider
        self._committer = stages.committer
        self._points = stages.points
        self._cache = cache
        self._observer = observer
        self.round = Round()
        #: The transactions of the current bell: all that this worker can be at work on.
        self.in_hand: frozenset[str] = frozenset()

    def run(self, step_type: StepType, pairs: Pairs, answers: str = "") -> int:
        """Do what a bell asks for; the number of transactions that were claimed.

        `answers`: the place of the doorbell that the bell came from; what waits there comes along.
        """
        self.in_hand = frozenset(tx_id for tx_id, _ in pairs)
        self._observer.hop_began(step_type, len(pairs))
        try:
            claimed = self._run(step_type, pairs, answers)
        finally:
            self._observer.hop_ended(step_type, len(pairs))
        self.in_hand = frozenset()
        return claimed

    def _run(self, step_type: StepType, pairs: Pairs, answers: str) -> int:
        is_held = self._doorbell.is_held(answers)
        claims = self._claim(step_type, pairs, "" if is_held else answers)
        reach("hop.after_claim")
        self._observer.claimed(claims)
        self._doorbell.saw(run.fields.get("owner", "") for run in claims)
        runs = self._committer.commit(self._admit(claims))
        place = runs[0].action.place if runs else ""
        work_s, shares = 0.0, False
        while runs:
            began_s = time.perf_counter()
            way, chosen, idle = self._executor.choose(runs)
            executed, idle = self._execute(way, chosen, idle)
            work_s += time.perf_counter() - began_s
            shares = shares or way in SHARING
            runs = idle + self._committer.commit(self._decide(executed))
        if place:
            self._costs.measured(place, transactions=len(claims), work_s=work_s, shares=shares)
        if is_held:
            self._doorbell.ring_held(answers)
        return len(claims)

    def _claim(self, step_type: StepType, pairs: Pairs, answers: str) -> list[Run]:
        """The transactions of the bell, and what waits at its doorbell."""
        orders = [self._doorbell.answering(answers, len(pairs))] if answers else []
        runs, replies = self._claim_pairs(step_type, pairs, orders)
        along = self._doorbell.answered(answers, replies[0]) if replies else ()
        if along:
            self.in_hand = self.in_hand.union(tx_id for tx_id, _ in along)
            runs += self._claim_pairs(step_type, along, [])[0]
        return runs

    def _claim_pairs(
        self, step_type: StepType, pairs: Pairs, orders: list[ScriptCall]
    ) -> tuple[list[Run], list[Reply]]:
        """Claim these in the round trip of the orders; and the replies to those."""
        begin = "" if step_type.is_unsafe else _OPENS
        kept = self._cache.take(tx_id for tx_id, _ in pairs)
        wanted = [
            (tx, str(sequence), kept[tx].name if tx in kept else "") for tx, sequence in pairs
        ]
        calls = self._live.calls_claim(wanted, self._node, step_type.name, begin)
        *replies, claims = self._live.run([*orders, calls])
        runs = []
        for (tx, _), reply in zip(pairs, claims, strict=True):
            answer = claimed(tx, reply)
            if isinstance(answer, Claimed):
                runs += self._read(answer, kept)
            else:
                _log_refused(answer)
        return runs, replies

    def _read(self, claimed: Claimed, kept: Mapping[str, Kept]) -> list[Run]:
        """The transaction as it is now; nothing of one that this release cannot read.

        That one stays claimed and not in hand: the guard frees it, perhaps for a newer worker.
        """
        tx_id = claimed.tx_id
        # The JSON is only sent when what is held here is not what is stored there.
        held = None if claimed.fields["state"] else kept[tx_id]
        try:
            return [Run.from_claim(claimed, self._vault, held)]
        except (ValueError, KeyError, TypeError, SealError, DatabaseUnavailable) as error:
            problem = f"the worker that claimed it cannot read its state: {error!r:.200}"
            about = {"event": "tx.blocked", "tx": tx_id, "fence": claimed.fence}
            log.exception("%s: %s", tx_id, problem, extra=about)
            return []

    def _admit(self, runs: list[Run]) -> Moves:
        """What claimed transactions do first: most of them execute their step."""
        self._points.admit(runs)
        moves: Moves = []
        for run in runs:
            try:
                moves.append((run, self._first_move(run)))
            except DatpError as error:
                log.error("%s cannot go on: %s", run.tx_id, error, extra=run.about("tx.blocked"))
                moves.append((run, Park(str(error))))
        return moves

    def _first_move(self, run: Run) -> Move:
        run.plan(self._pipelines.version)
        if run.action.kind == "end" or not self._registry.find(run.action.step_type):
            return NEXT
        if run.state.decided:
            return self._decider.follow_decision(run)
        if run.waits_for_sql:
            close(run)
            return self._decider.wait_for_handler()
        if run.crashed:
            # What the lost worker did must be found out before anything else.
            return self._decider.too_many_crashes(run) or STAY
        if run.stop_request and run.state.ending is None and not run.ignores_stop:
            if "recreated" in run.fields and "begun" not in run.fields:
                # What it had done before the loss is not known, so it cannot simply end.
                return Park("Redis had lost it, and it was asked to stop before it ran again")
            self._decider.stop(run)
            return NEXT
        if run.is_overdue and run.action.kind == "run":
            close(run)
            return self._decider.wait_for_handler()
        return STAY

    def _execute(self, way: Way, chosen: list[Run], idle: list[Run]) -> tuple[list[Run], list[Run]]:
        """One round: those that have an outcome now, and those that wait for a later round."""
        refused = self._own_undo([run for run in chosen if run.action.kind == "undo"])
        refused += self._points.pass_points(chosen)
        if refused:
            chosen = [run for run in chosen if run not in refused]
        self._observer.round_began(chosen)
        if chosen:
            self._executor.execute(way, chosen, idle, self.round)
            chosen, idle = self.round.end()
        self._observer.round_ended(chosen)
        return refused + [run for run in chosen if not isinstance(run.outcome, Lost)], idle

    def _own_undo(self, runs: list[Run]) -> list[Run]:
        """Before anything is undone SQL must agree that it is this worker's: Redis may be behind.

        Those that must not be undone here, with the outcome that says so.
        """
        unsure = [run for run in runs if not run.owns_undo]
        if not unsure:
            return []
        try:
            owned = self._record.take_fences([(run.tx_id, run.fence) for run in unsure])
        except OperationalError as error:
            if not is_outage(error):
                raise
            for run in unsure:
                run.outcome = Unavailable()
            return unsure
        for run in unsure:
            run.owns_undo = run.tx_id in owned
            run.outcome = None if run.owns_undo else RecordRefused()
        return [run for run in unsure if not run.owns_undo]

    def _decide(self, runs: list[Run]) -> Moves:
        self._points.look_at_broken(runs)
        return [(run, self._decider.decide(run)) for run in runs]

    def rescue(self, stuck: Stuck) -> None:
        """Called by the guard: let the neighbours of a stuck step go on elsewhere."""
        running = stuck.running
        log.warning(
            "%s has been in step %s (%s) for %.1f s; %d transactions beside it go on elsewhere",
            running.tx_id,
            running.action.path,
            running.action.step_type,
            stuck.running_s,
            len(stuck.done) + len(stuck.waiting),
            extra=running.about("tx.stuck"),
        )
        self._costs.measured(running.action.place, transactions=1, work_s=stuck.running_s)
        moves: Moves = []
        for run in stuck.waiting:
            run.outcome = run.held_reports = None
            close(run)
            moves.append((run, NEXT))
        try:
            self._committer.commit(moves + self._decide(stuck.done), may_go_on=False)
        except Exception:
            # They are in no hand any more: the guard frees them at its next looks.
            self.in_hand -= {run.tx_id for run in (*stuck.waiting, *stuck.done)}
            raise


def _log_refused(refused: NotClaimed) -> None:
    about = {"event": "tx.refused", "tx": refused.tx_id, "fence": None}
    log.debug("%s not claimed: %s %s", refused.tx_id, refused.word, refused.found, extra=about)
