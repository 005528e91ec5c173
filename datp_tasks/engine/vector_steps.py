"""Vector steps: one call of a function for all transactions of the vector that are at the step.

A call that raises, gives an item no outcome or two, or cannot be committed is undone and made
again in halves, until what is broken is alone. Of a transactional one the effects of all items
and their outputs are one commit; an item whose effect was recorded by an earlier try is not
shown. A call that times out is not made again here: its items run alone, each in its own hop.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence

from sqlalchemy.exc import OperationalError

from datp_tasks.archive.effects import Effects, EffectStore, Wanted
from datp_tasks.archive.engine import is_away
from datp_tasks.engine.batch import Batch, Purpose, Said
from datp_tasks.engine.calls import StepCaller, finished, is_async, must_be_reviewed, review, shown
from datp_tasks.engine.event_loop import EventLoop
from datp_tasks.engine.outcomes import (
    Broken,
    Ended,
    Lost,
    Outcome,
    Output,
    RunAlone,
    Unanswered,
    Unavailable,
)
from datp_tasks.engine.registry import StepFunction, StepType
from datp_tasks.engine.round import Round
from datp_tasks.engine.run import Run
from datp_tasks.errors import StepError, StepTimeout
from datp_tasks.model.notes import clean_note
from datp_tasks.model.outcome import Abort, Done, Fail, Retry
from datp_tasks.model.payload import Json
from datp_tasks.settings import Settings

log = logging.getLogger("datp.step")

#: Tries of one and the same batch when PostgreSQL says that it is not the batch's fault.
TRIES = 3


class BrokenBatch(Exception):
    """What a vector step did that no vector step may do."""


class VectorSteps:
    def __init__(
        self, settings: Settings, effects: EffectStore, caller: StepCaller, loop: EventLoop
    ) -> None:
        self._settings = settings
        self._effects = effects
        self._caller = caller
        self._loop = loop

    def run(self, round: Round, *, probes: bool = False) -> None:
        """Run, undo or probe all that wait, of one step type and for one purpose."""
        parts = [round.waiting()]
        while parts:
            part = parts.pop()
            step_type = self._caller.type_of(part[0])
            limit_s = min(map(self._caller.timeout_s, part))
            part = round.start(part, limit_s)
            if not part:
                continue
            if probes and must_be_reviewed(step_type):
                for run in part:
                    run.outcome = review(run)
            elif self._call(part, step_type, limit_s, probes=probes) is False:
                round.undone()
                middle = len(part) // 2
                parts += [part[middle:], part[:middle]]
                continue
            round.finish(part)

    def _call(self, part: list[Run], step_type: StepType, limit_s: float, *, probes: bool) -> bool:
        """Give each its outcome; False if they must be called again in halves."""
        is_sql = step_type.transactional and not probes
        for _ in range(TRIES):
            try:
                if is_sql:
                    self._in_transaction(part, step_type, limit_s)
                else:
                    self._outcomes(part, step_type, limit_s, None, probes=probes)
                return True
            except StepTimeout:
                return self._timed_out(part, step_type, probes=probes)
            except OperationalError as error:
                # Lost connections, deadlocks and the like: the same again may well succeed.
                if not is_sql:
                    return self._broken(part, step_type, error, probes=probes)
                last = error
            except Exception as error:
                return self._broken(part, step_type, error, probes=probes)
        if not is_away(last):
            return self._broken(part, step_type, last, probes=probes)
        log.warning("PostgreSQL is unavailable; %d wait in step %s", len(part), step_type.name)
        for run in part:
            run.outcome = Unavailable()
        return True

    def _in_transaction(self, part: list[Run], step_type: StepType, limit_s: float) -> None:
        wanted = [Wanted(run.tx_id, run.idempotency_key, run.fence) for run in part]
        idle_s = limit_s + self._settings.step_kill_grace_s
        with self._effects.open(wanted, idle_s=idle_s, lock_ms=0) as effects:
            fresh = []
            for run in part:
                run.held_reports = []
                if run.tx_id not in effects.held:
                    run.outcome = Lost()
                elif run.tx_id in effects.recorded:
                    run.outcome = Output(effects.recorded[run.tx_id])
                else:
                    fresh.append(run)
            if fresh:
                self._outcomes(fresh, step_type, limit_s, effects)
                effects.record(_outputs(fresh))
                effects.is_to_commit = True
        for run in part:
            self._caller.report_held(run)

    def _outcomes(
        self,
        runs: list[Run],
        step_type: StepType,
        limit_s: float,
        effects: Effects | None,
        *,
        probes: bool = False,
    ) -> None:
        """Call the function; BrokenBatch unless it gives each item one outcome."""
        undoes = runs[0].action.kind == "undo"
        purpose: Purpose = "probe" if probes else "undo" if undoes else "run"
        sql = effects.connection if effects else None
        batch = Batch(step_type.name, purpose, runs, self._caller.services, sql)
        function = step_type.probe_function if probes else None
        function = function or self._caller.function_of(runs[0], step_type)
        try:
            returned = self._returned(function, batch, limit_s)
        finally:
            said = batch.close()
        if effects is not None:
            effects.check()
        if returned is not None:
            raise BrokenBatch("a vector step returns nothing; it gives each item its outcome")
        if batch.misuse:
            raise BrokenBatch(batch.misuse)
        silent = [run.tx_id for run, each in zip(runs, said, strict=True) if each is None]
        if silent:
            raise BrokenBatch(f"{len(silent)} of {len(runs)} items got no outcome: {silent[0]}")
        outcomes = [self._sorted(run, purpose, each) for run, each in zip(runs, said, strict=True)]
        for run, outcome in zip(runs, outcomes, strict=True):
            run.outcome = outcome

    def _returned(self, function: StepFunction, batch: Batch, limit_s: float) -> object:
        if is_async(function):
            return self._loop.result(function(batch), limit_s)
        with self._caller.time_limit(limit_s):
            return finished(function(batch))

    def _sorted(self, run: Run, purpose: Purpose, said: Said | None) -> Outcome:
        if isinstance(said, Retry):
            note = clean_note(said.note or "the step wants to be tried again")
            return Unanswered(note) if purpose == "probe" else Broken(note)
        if purpose == "probe":
            return self._caller.answered(run, said)
        if isinstance(said, Fail | Abort):
            return self._caller.ended(said)
        if isinstance(said, Done):
            return self._caller.sorted(run, None if said.output is None else dict(said.output))
        return self._caller.sorted(run, said)

    # What went wrong.

    def _timed_out(self, part: list[Run], step_type: StepType, *, probes: bool) -> bool:
        if len(part) == 1:
            outcome = self._caller.timed_out(part[0])
            part[0].outcome = Unanswered(outcome.note) if probes else outcome
            return True
        log.error(
            "%s did not return for %d items in time; each runs alone from here",
            step_type.name,
            len(part),
            extra=part[0].about("step.broken"),
        )
        for run in part:
            run.outcome = RunAlone()
        return True

    def _broken(
        self, part: list[Run], step_type: StepType, error: Exception, *, probes: bool
    ) -> bool:
        for run in part:
            run.outcome = run.held_reports = None
        if len(part) > 1:
            log.warning(
                "%s broke for %d items and runs again in halves: %s",
                step_type.name,
                len(part),
                shown(error).partition("\n")[0],
                extra=part[0].about("step.broken"),
            )
            return False
        run = part[0]
        if isinstance(error, BrokenBatch | StepError):
            log.error("%s: %s", step_type.name, error, extra=run.about("step.broken"))
            outcome: Outcome = Broken(clean_note(f"{step_type.name}: {error}"))
        else:
            outcome = self._caller.raised(run, error)
        if probes and isinstance(outcome, Broken | Ended):
            outcome = Unanswered(outcome.note)
        run.outcome = outcome
        return True


def _outputs(runs: Sequence[Run]) -> dict[str, Json | None]:
    """Of those that took effect; what failed, sleeps or is tried again has none to record."""
    return {run.tx_id: run.outcome.data for run in runs if isinstance(run.outcome, Output)}
