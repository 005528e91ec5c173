"""Executing a round: each transaction's action is called in the way of its step type.

probe      the action's worker was lost in the middle: ask before anything else
unsafe     not safe to run again: one alone, its outcome written down before the next begins
vector     one call for all that are at the step
async      all at once, on the event loop of this process
sql        one after another in a shared SQL transaction
plain      one after another
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from concurrent import futures
from typing import Literal

from datp_tasks.engine.calls import StepCaller
from datp_tasks.engine.event_loop import EventLoop
from datp_tasks.engine.outcomes import AskFirst, Lost, Outcome, Unavailable
from datp_tasks.engine.round import Round
from datp_tasks.engine.run import Run
from datp_tasks.engine.sql_steps import SqlSteps
from datp_tasks.engine.vector_steps import VectorSteps
from datp_tasks.failpoints import reach
from datp_tasks.live.scripts import ScriptCall
from datp_tasks.live.store import LiveStore
from datp_tasks.model.state import BEGIN
from datp_tasks.record.database import is_outage
from datp_tasks.record.effects import EffectStore
from datp_tasks.record.sql_errors import OperationalError
from datp_tasks.record.step_starts import BegunSteps
from datp_tasks.settings import Settings

log = logging.getLogger("datp.hop")

Way = Literal["probe", "unsafe", "vector", "async", "sql", "plain"]

#: What must be known, or is alone, goes first; then all are in step again.
_ORDER: dict[Way, int] = {"probe": 0, "unsafe": 1, "vector": 2, "sql": 2, "async": 2, "plain": 2}


class Executor:
    def __init__(
        self,
        settings: Settings,
        live: LiveStore,
        begun: BegunSteps,
        effects: EffectStore,
        caller: StepCaller,
    ) -> None:
        self._live = live
        self._begun = begun
        self.caller = caller
        self.loop = EventLoop()
        self._sql_steps = SqlSteps(settings, effects, caller)
        self._vector_steps = VectorSteps(settings, effects, caller, self.loop)
        #: By step type, kind of action, and whether it must be asked for first.
        self._ways: dict[tuple[str, str, bool], tuple[Way, str]] = {}

    def choose(self, runs: list[Run]) -> tuple[Way, list[Run], list[Run]]:
        """Those that are executed next and how, and those that wait for a later round.

        A step that is not safe to run again gets a round of its own, so that its outcome is
        written down before the next one begins: a crash then puts no neighbour in doubt.
        """
        ways = self._ways_of(runs)
        chosen_way = ways[0]
        if ways.count(chosen_way) < len(runs):
            chosen_way = min(ways, key=lambda each: _ORDER[each[0]])
        elif chosen_way[0] != "unsafe":
            return chosen_way[0], runs, []
        way = chosen_way[0]
        chosen = [run for run, each in zip(runs, ways, strict=True) if each == chosen_way]
        if way == "unsafe":
            chosen = chosen[:1]
        taken = set(chosen)
        return way, chosen, [run for run in runs if run not in taken]

    def execute(self, way: Way, runs: list[Run], idle: Sequence[Run], round: Round) -> None:
        """Give each its outcome. The guard may take some away; the round knows what is left."""
        opened, settled = self._begin(runs) if way != "probe" else (runs, [])
        round.begin(opened, idle)
        try:
            match way:
                case "probe":
                    self._probe(round)
                case "vector":
                    self._vector_steps.run(round)
                case "async":
                    self._on_loop(round)
                case "sql":
                    self._sql_steps.run(round)
                case "plain":
                    self._in_turn(round, self.caller.call)
                case "unsafe":
                    self._in_turn(round, self._call_unsafe)
        finally:
            self.caller.time_limit.disarm()
        round.finish(settled)
        reach("hop.after_step")

    def _ways_of(self, runs: list[Run]) -> list[tuple[Way, str]]:
        """The way of each; those of a vector are mostly at the same action, and share it."""
        ways: list[tuple[Way, str]] = []
        action, crashed = runs[0].action, runs[0].crashed
        way = self._way(runs[0])
        for run in runs:
            if run.action is not action or run.crashed != crashed:
                action, crashed = run.action, run.crashed
                way = self._way(run)
            ways.append(way)
        return ways

    def _way(self, run: Run) -> tuple[Way, str]:
        about = (run.action.step_type, run.action.kind, run.crashed)
        way = self._ways.get(about)
        if way is None:
            way = self._ways[about] = self._way_of(run)
        return way

    def _way_of(self, run: Run) -> tuple[Way, str]:
        step_type = self.caller.type_of(run)
        if self.caller.must_ask(run):
            return "probe", step_type.name
        if step_type.vector:
            return "vector", f"{run.action.kind} {step_type.name}"
        if step_type.transactional:
            return "sql", step_type.name
        if self.caller.is_unsafe(run):
            return "unsafe", ""
        return ("async" if self.caller.is_async(run) else "plain"), ""

    # Ways to execute.

    def _in_turn(self, round: Round, call: Callable[[Run], Outcome]) -> None:
        caller = self.caller
        while (run := round.next(caller.timeout_s)) is not None:
            try:
                run.outcome = call(run)
            except Exception as error:
                run.outcome = caller.raised(run, error)

    def _call_unsafe(self, run: Run) -> Outcome:
        """Of those that are not safe to run again, some are async."""
        if self.caller.is_async(run):
            return self.loop.start(self.caller.call_async(run)).result()
        return self.caller.call(run)

    def _probe(self, round: Round) -> None:
        if self.caller.type_of(round.waiting()[0]).vector:
            self._vector_steps.run(round, probes=True)
            return
        while (run := round.next(self.caller.timeout_s)) is not None:
            run.outcome = self.caller.probe(run)

    def _on_loop(self, round: Round) -> None:
        """All at once; the guard takes away those that are done while others are slow."""

        async def call(run: Run) -> None:
            # Another step may have blocked the loop for so long that the guard took this one away.
            if round.start([run], self.caller.timeout_s(run)):
                run.outcome = await self.caller.call_async(run)
                round.finish([run])

        calls = [self.loop.start(call(run)) for run in round.waiting()]
        for future in futures.as_completed(calls):
            future.result()

    # Marks.

    def _begin(self, runs: list[Run]) -> tuple[list[Run], list[Run]]:
        """Mark steps begun that no claim or checkpoint has opened.

        Those that may run now, and those that have an outcome without having run.
        """
        closed = [run for run in runs if not run.state.open]
        # After a probe said that nothing had happened, the step is open and SQL knows of it.
        unmarked = []
        if runs and self.caller.is_unsafe(runs[0]):
            unmarked = [run for run in runs if run.state.open and not run.mid_way]
        marked = closed + unmarked
        if not marked:
            return runs, []
        replies = self._live.run([self._mark(run) for run in marked])
        reach("hop.after_begin")
        for run, reply in zip(marked, replies, strict=True):
            if reply[0] != "OK":
                run.outcome = Lost()
        unsafe = [run for run in closed if run.mid_way and run.outcome is None]
        if unsafe:
            self._begin_in_sql(unsafe)
        settled = [run for run in marked if run.outcome is not None or run.crashed]
        if not settled:
            return runs, []
        return [run for run in runs if run not in settled], settled

    def _mark(self, run: Run) -> ScriptCall:
        fields: tuple[str, ...] = ()
        if not run.state.open:
            run.change(BEGIN)
            fields = ("begun", "1")
        if self.caller.is_unsafe(run):
            # The reaper waits for that long before it finds out what became of the step.
            limit_ms = int(self.caller.timeout_s(run) * 1_000)
            fields += ("unsafe", f"{run.fence}:{limit_ms}")
            run.mid_way = True
        return self._live.call_checkpoint(run.take_pending(), fields)

    def _begin_in_sql(self, runs: list[Run]) -> None:
        """Redis can lose its last writes, and a step that is not safe must not run twice."""
        marks = [(run.tx_id, run.attempt_key, run.fence) for run in runs]
        try:
            first = self._begun.mark_many(marks)
        except OperationalError as error:
            if not is_outage(error):
                raise
            log.warning("PostgreSQL is unavailable; %d wait in their step", len(runs))
            for run in runs:
                run.outcome = Unavailable()
            return
        reach("hop.after_begun")
        for run in runs:
            if run.tx_id not in first:
                # An earlier try began it, and Redis has forgotten: it must be asked for first.
                run.crashed = True
                run.outcome = AskFirst()
