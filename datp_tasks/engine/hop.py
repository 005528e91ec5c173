"""The hop: what one bell does, for a vector of transactions in lockstep.

    claim → admit → [ perform → digest → settle ] … until every transaction has left

All of a vector share each round trip and each SQL commit; each keeps its own fence, checkpoint
and outcome. One that sleeps, ends, hands over or is refused leaves, the others go on.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence
from concurrent import futures

from sqlalchemy.exc import OperationalError

from datp_tasks.archive.begun import BegunSteps
from datp_tasks.archive.engine import is_away
from datp_tasks.bells.costs import CostBook
from datp_tasks.engine.commit import Settler
from datp_tasks.engine.decide import Digester, Move, Next, Park, Pipelines, close
from datp_tasks.engine.event_loop import EventLoop
from datp_tasks.engine.execute import Performer
from datp_tasks.engine.outcomes import Again, Away, Lost, Outcome
from datp_tasks.engine.registry import Registry, StepType
from datp_tasks.engine.run import Run
from datp_tasks.engine.state_cache import StateCache
from datp_tasks.engine.vector import Stuck, Vector
from datp_tasks.errors import DatpError
from datp_tasks.failpoints import reach
from datp_tasks.live.store import LiveStore
from datp_tasks.live.words import Claimed, Refused
from datp_tasks.model.state import BEGIN, delta_json
from datp_tasks.settings import Settings

log = logging.getLogger("datp.hop")

Pairs = Sequence[tuple[str, int]]


class Hop:
    """The engine of one process. It is used by one thread at a time, plus the watchman."""

    def __init__(
        self,
        *,
        settings: Settings,
        live: LiveStore,
        pipelines: Pipelines,
        registry: Registry,
        performer: Performer,
        digester: Digester,
        settler: Settler,
        costs: CostBook,
        cache: StateCache,
        begun: BegunSteps,
        node: str,
    ) -> None:
        self._settings = settings
        self._live = live
        self._pipelines = pipelines
        self._registry = registry
        self._performer = performer
        self._digester = digester
        self._settler = settler
        self._costs = costs
        self._cache = cache
        self._begun = begun
        self._node = node
        self._loop = EventLoop()
        self.vector = Vector()
        #: The transactions of the current bell: all that this worker can be at work on.
        self.in_hand: frozenset[str] = frozenset()

    def run(self, step_type: StepType, pairs: Pairs) -> int:
        """Do what a bell asks for; the number of transactions that were claimed."""
        self.in_hand = frozenset(tx_id for tx_id, _ in pairs)
        runs = self.claim(step_type, pairs)
        reach("hop.after_claim")
        claimed = len(runs)
        runs = self.admit(runs)
        place = runs[0].action.place if runs else ""
        work_s = 0.0
        while runs:
            performing_s = time.perf_counter()
            runs = self.perform(runs)
            work_s += time.perf_counter() - performing_s
            moves = self.digest(runs)
            runs = self._settler.settle(moves)
        if place:
            self._costs.measured(place, transactions=claimed, work_s=work_s)
        self.in_hand = frozenset()
        return claimed

    def claim(self, step_type: StepType, pairs: Pairs) -> list[Run]:
        """Through the one door; what is refused has been dealt with by somebody else."""
        begin = delta_json(BEGIN) if step_type.on_crash == "rerun" else ""
        held = self._cache.names(tx_id for tx_id, _ in pairs)
        runs = []
        answers = self._live.claim_many(
            pairs, self._node, step_type=step_type.name, begin=begin, held=held
        )
        for answer in answers:
            if isinstance(answer, Claimed):
                cached = self._cache.take(answer.tx_id) if answer.tx_id in held else None
                # The JSON is only sent when what is held here is not what is stored there.
                runs.append(Run.from_claim(answer, None if answer.fields["state"] else cached))
            else:
                self._refused(answer)
        return runs

    def admit(self, runs: list[Run]) -> list[Run]:
        """Decide what claimed transactions do first; those that cannot go on here leave."""
        moves: list[tuple[Run, Move]] = []
        admitted: list[Run] = []
        for run in runs:
            try:
                move = self._first_move(run)
            except DatpError as error:
                log.error("%s cannot go on: %s", run.tx_id, error, extra=run.about("tx.blocked"))
                move = Park(str(error))
            if move is None:
                admitted.append(run)
            else:
                moves.append((run, move))
        return admitted + self._settler.settle(moves)

    def _first_move(self, run: Run) -> Move | None:
        run.plan(self._pipelines.version)
        if run.action.kind == "end" or not self._registry.find(run.action.step_type):
            return Next()
        if run.state.decided:
            return self._digester.follow_decision(run)
        if run.crashed:
            # What the lost worker did must be found out before anything else.
            return self._digester.too_many_crashes(run)
        if run.cancel and run.state.ending is None:
            self._digester.cancel(run)
            return Next()
        if run.is_overdue and run.action.kind == "run":
            close(run)
            return self._digester.wait_for_handler()
        return None

    def perform(self, runs: list[Run]) -> list[Run]:
        """Call the step of each transaction: those on the event loop together, others in turn."""
        together = [run for run in runs if self._performer.is_async(run)]
        in_turn = [run for run in runs if not self._performer.is_async(run)] if together else runs
        performed = self._perform_in_turn(in_turn)
        if together:
            performed += self._perform_together(together)
        reach("hop.after_step")
        return [run for run in performed if not isinstance(run.outcome, Lost)]

    def _perform_in_turn(self, runs: list[Run]) -> list[Run]:
        vector = self.vector
        vector.start_round(runs)
        while (run := vector.next()) is not None:
            vector.limit(self._performer.timeout_s(run))
            run.outcome = self._begin(run)
            if run.outcome is not None:
                continue
            run.outcome = self._performer.perform(run)
            if isinstance(run.outcome, Again):
                run.crashed = False
                run.outcome = self._performer.perform(run)
            if len(runs) > 1 and self._performer.is_unsafe(run):
                # Written down before the next one begins, whose crash must not put it in doubt.
                vector.leave()
                alone = [] if isinstance(run.outcome, Lost) else self.digest([run])
                self._settler.settle(alone, may_go_on=False)
        return vector.end_round()

    def _perform_together(self, runs: list[Run]) -> list[Run]:
        for run in runs:
            run.outcome = self._begin(run)
        # One that may have run before is not simply run again: somebody must be asked first.
        asked = [run for run in runs if run.outcome is None and run.crashed]
        apart = [run for run in runs if run.outcome is not None] + self._perform_in_turn(asked)
        begun = [run for run in runs if run.outcome is None]
        return apart + self._perform_on_loop(begun)

    def _perform_on_loop(self, begun: list[Run]) -> list[Run]:
        running = {self._loop.start(self._performer.perform_async(run)): run for run in begun}
        stuck_s = self._settings.vector_stuck_ms / 1_000
        done, slow = futures.wait(running, timeout=stuck_s)
        while True:
            for future in done:
                running[future].outcome = future.result()
            performed = [running[future] for future in running if future in done]
            if not slow:
                return performed
            # Those that are done need not wait for the slow ones: they go on elsewhere.
            kept = [run for run in performed if not isinstance(run.outcome, Lost)]
            self._settler.settle(self.digest(kept), may_go_on=False)
            done, slow = futures.wait(slow, timeout=stuck_s)

    def _begin(self, run: Run) -> Outcome | None:
        """Mark the step begun, unless the claim or the last checkpoint did so already.

        An outcome if the step cannot be run now.
        """
        if run.state.open:
            return None
        run.change(BEGIN)
        unsafe = self._performer.is_unsafe(run)
        fields: tuple[str, ...] = ("begun", "1")
        if unsafe:
            # The reaper waits for that long before it finds out what became of the step.
            limit_ms = int(self._performer.timeout_s(run) * 1_000)
            fields += ("unsafe", f"{run.fence}:{limit_ms}")
            run.mid_way = True
        call = self._live.call_checkpoint(run.take_pending(), fields)
        word = self._live.run([call])[0][0]
        reach("hop.after_begin")
        if word != "OK":
            return Lost()
        return self._begin_in_sql(run) if unsafe else None

    def _begin_in_sql(self, run: Run) -> Outcome | None:
        """Redis can lose its last writes, and a step that is not safe must not run twice."""
        try:
            is_first = self._begun.mark(run.tx_id, run.attempt_key, run.fence)
        except OperationalError as error:
            if not is_away(error):
                raise
            about = run.about("tx.waits")
            log.warning("SQL is away; %s waits in step %s", run.tx_id, run.action.path, extra=about)
            return Away()
        reach("hop.after_begun")
        run.crashed = not is_first
        return None

    def digest(self, runs: list[Run]) -> list[tuple[Run, Move]]:
        moves: list[tuple[Run, Move]] = []
        for run in runs:
            run.crashed = False
            moves.append((run, self._digester.digest(run)))
        return moves

    def rescue(self, stuck: Stuck) -> None:
        """Called by the watchman: let the neighbours of a stuck step go on elsewhere."""
        log.warning(
            "%s has been in step %s (%s) for %.1f s; %d transactions beside it go on elsewhere",
            stuck.current.tx_id,
            stuck.current.action.path,
            stuck.current.action.step_type,
            stuck.current_s,
            len(stuck.done) + len(stuck.waiting),
            extra=stuck.current.about("tx.stuck"),
        )
        place = stuck.current.action.place
        self._costs.measured(place, transactions=1, work_s=stuck.current_s)
        for run in stuck.waiting:
            close(run)
        waiting: list[tuple[Run, Move]] = [(run, Next()) for run in stuck.waiting]
        done = [run for run in stuck.done if not isinstance(run.outcome, Lost)]
        self._settler.settle(waiting + self.digest(done), may_go_on=False)

    def _refused(self, refused: Refused) -> None:
        about = {"event": "tx.refused", "tx": refused.tx_id, "fence": None}
        log.debug("%s not claimed: %s %s", refused.tx_id, refused.word, refused.found, extra=about)
