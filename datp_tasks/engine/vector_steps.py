"""Vector steps: one call of a function for all transactions of the vector that are at the step.

A call that raises is undone and made again in halves, until what is broken is alone. Items that
got no outcome are called again without those that got one. Of a transactional step the effects of
all items and their outputs are one commit; an item whose effect was recorded by an earlier try is
not shown. A call that times out is not made again here: its items run alone, each in its own hop.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import frexp

from datp_tasks.engine.batch import Batch, Item, Purpose
from datp_tasks.engine.calls import (
    StepCaller,
    StepTypeHasNoRollback,
    finished,
    is_async,
    must_be_reviewed,
    review,
    shown,
)
from datp_tasks.engine.event_loop import EventLoop
from datp_tasks.engine.outcomes import (
    Broken,
    Ended,
    Outcome,
    Output,
    RunAlone,
    SwitchNotKept,
    Unanswered,
    Unavailable,
)
from datp_tasks.engine.points_of_no_return import known_outcome, wanting
from datp_tasks.engine.registry import StepFunction, StepType
from datp_tasks.engine.round import Round
from datp_tasks.engine.run import Run
from datp_tasks.errors import StepError, StepTimeout
from datp_tasks.model.notes import clean_note
from datp_tasks.model.outcome import Abort, Done, Fail, Retry
from datp_tasks.model.payload import Json, NotJson
from datp_tasks.record.effects import Effects, EffectStore, WantedEffect, is_passing, is_unavailable
from datp_tasks.record.sql_errors import DBAPIError
from datp_tasks.settings import Settings

log = logging.getLogger("datp.step")

#: Tries of one and the same batch while PostgreSQL says nothing about the batch itself.
TRIES = 3
#: How long a batch of several waits for a lock: much longer than another batch holds one. In
#: halves, only those that want what is locked wait for it.
LOCK_MS = 2_000

NO_OUTCOME = "the step returned without giving it an outcome"
RETURNED = "a vector step returns nothing; it gives each item its outcome"
WENT_ON = "a statement of the step failed, and the step went on"

#: What must be called again, part by part.
Parts = list[list[Run]]


class BrokenBatch(Exception):
    """What a vector step did that no vector step may do."""


class Incomplete(BrokenBatch):
    """Some items have no outcome, or one that cannot be written down."""

    def __init__(self, runs: list[Run], problem: str) -> None:
        super().__init__(problem)
        self.runs = runs


@dataclass(frozen=True, slots=True)
class _Call:
    """One call of one function for several transactions."""

    step_type: StepType
    purpose: Purpose
    runs: list[Run]
    limit_s: float

    @property
    def is_sql(self) -> bool:
        return self.step_type.transactional and self.purpose != "probe"

    @property
    def is_made_once(self) -> bool:
        """Whether a call that broke counts as a try of each item, instead of being made again.

        What is not safe to run again may have happened outside for some of them.
        """
        is_unsafe = self.purpose == "run" and self.step_type.is_unsafe and not self.is_sql
        return is_unsafe or len(self.runs) == 1

    @property
    def function(self) -> StepFunction | None:
        match self.purpose:
            case "run":
                return self.step_type.function
            case "undo":
                return self.step_type.rollback_function
            case "probe":
                return self.step_type.probe_function


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
        parts = self._by_time_limit(round.waiting())
        while parts:
            limit_s = min(map(self._caller.timeout_s, parts[-1]))
            part = round.start(parts.pop(), limit_s)
            if not part:
                continue
            purpose: Purpose = "undo" if part[0].action.kind == "undo" else "run"
            step_type = self._caller.type_of(part[0])
            call = _Call(step_type, "probe" if probes else purpose, part, limit_s)
            again = self._called(call, round)
            left = {run for each in again for run in each}
            round.finish([run for run in part if run not in left])
            round.undone()
            parts += reversed(again)

    def _by_time_limit(self, runs: Sequence[Run]) -> Parts:
        """Together only those that have about as much time; those with the least come last.

        One that expires soon must not cut the time of the others short.
        """
        parts: dict[int, list[Run]] = {}
        for run in runs:
            _, doublings = frexp(self._caller.timeout_s(run))
            parts.setdefault(doublings, []).append(run)
        return [part for _, part in sorted(parts.items(), reverse=True)]

    def _called(self, call: _Call, round: Round) -> Parts:
        """Give each its outcome, but those that must be called again."""
        if call.purpose == "probe" and must_be_reviewed(call.step_type):
            for run in call.runs:
                run.outcome = review(run)
            return []
        if call.function is None:
            for run in call.runs:
                run.outcome = self._caller.raised(run, StepTypeHasNoRollback(call.step_type.name))
            return []
        again = self._called_until_sure(call, round)
        if again is None:
            # The effects are committed, whatever comes of this.
            for run in call.runs:
                self._caller.report_held(run)
        return again or []

    def _called_until_sure(self, call: _Call, round: Round) -> Parts | None:
        """None if it went well."""
        for _ in range(TRIES):
            try:
                self._tried(call, round)
                return None
            except DBAPIError as error:
                if not (call.is_sql and is_passing(error)):
                    return self._broken(call, error)
                last = error
            except Exception as error:
                return self._troubled(call, error)
        return self._unavailable(call, last)

    def _tried(self, call: _Call, round: Round) -> None:
        if not call.is_sql:
            self._outcomes(call, call.runs, round)
            return
        wanted = [WantedEffect(run.tx_id, run.idempotency_key, run.fence) for run in call.runs]
        idle_s = call.limit_s + self._settings.step_kill_grace_s
        lock_ms = LOCK_MS if len(wanted) > 1 else 0
        with self._effects.open(wanted, idle_s=idle_s, lock_ms=lock_ms) as effects:
            fresh = _fresh(call.runs, effects)
            if fresh:
                self._outcomes(call, fresh, round, effects)
                outputs = _outputs(fresh)
                if outputs and not effects.is_sound:
                    raise BrokenBatch(WENT_ON)
                effects.record(outputs)
                effects.pass_points(wanting(fresh))
                # Without an output nothing would tell the next try of an effect: so there is none.
                effects.is_to_commit = bool(outputs)

    def _outcomes(
        self, call: _Call, runs: list[Run], round: Round, effects: Effects | None = None
    ) -> None:
        """Call the function once. Incomplete if not every item got an outcome."""
        assert call.function is not None
        sql = effects.connection if effects else None
        batch = Batch(call.step_type.name, call.purpose, runs, self._caller.services, sql)
        # Waiting for the rows, and tries before this one, are not the step's own time.
        round.extend(call.limit_s)
        with self._caller.traced(runs):
            try:
                returned = self._returned(call.function, batch, call.limit_s)
            finally:
                batch.close()
            if effects is not None:
                effects.check()
            if returned is not None:
                raise BrokenBatch(RETURNED)
            incomplete = self._sort(call, runs, batch)
        if incomplete is not None:
            raise incomplete

    def _returned(self, function: StepFunction, batch: Batch, limit_s: float) -> object:
        if is_async(function):
            return self._loop.result(function(batch), limit_s)
        with self._caller.time_limit(limit_s):
            return finished(function(batch))

    # Sorting.

    def _sort(self, call: _Call, runs: list[Run], batch: Batch) -> Incomplete | None:
        """What was said of each, as its Outcome; those of which nothing useful was said."""
        silent: list[Run] = []
        problem = ""
        for run, item in zip(runs, batch, strict=True):
            found = item.problem or ("" if item.said else NO_OUTCOME)
            if not found:
                try:
                    run.outcome = self._sorted(run, call.purpose, item)
                    continue
                except NotJson as error:
                    found = str(error)
            if call.is_sql or not item.said:
                silent.append(run)
                problem = problem or found
            else:
                # Said once and wrongly: outside, it may have happened, so it is not called again.
                self._break(call, run, BrokenBatch(found))
        return Incomplete(silent, problem) if silent else None

    def _sorted(self, run: Run, purpose: Purpose, item: Item) -> Outcome:
        said = item.said
        if isinstance(said, Retry):
            note = clean_note(said.note or "the step wants to be tried again")
            return Unanswered(note) if purpose == "probe" else Broken(note)
        if purpose == "probe":
            return self._caller.answered(run, said)
        if isinstance(said, Fail | Abort):
            return self._caller.ended(said)
        if not isinstance(said, Done):
            return self._caller.returned(run, said)
        if said.output is None:
            return Output(None)
        output: object = said.output
        # What is no mapping, such as a Sleep, is refused here.
        return self._caller.returned(
            run, dict(output) if isinstance(output, Mapping) else self._caller.json(output)
        )

    # What went wrong.

    def _troubled(self, call: _Call, error: Exception) -> Parts:
        if isinstance(error, StepTimeout):
            return self._timed_out(call)
        if isinstance(error, Incomplete):
            return self._incomplete(call, error)
        return self._broken(call, error)

    def _unavailable(self, call: _Call, error: DBAPIError) -> Parts:
        if not is_unavailable(error):
            return self._broken(call, error)
        name = call.step_type.name
        log.warning("PostgreSQL is unavailable; %d wait in step %s", len(call.runs), name)
        _forget(call.runs)
        for run in call.runs:
            run.outcome = Unavailable()
        return []

    def _timed_out(self, call: _Call) -> Parts:
        if call.is_made_once:
            return self._break_all(call, call.runs, StepTimeout())
        _forget(call.runs)
        log.error(
            "%s did not return for %d items within %g s; each runs alone from here",
            call.step_type.name,
            len(call.runs),
            call.limit_s,
            extra=call.runs[0].about("step.broken"),
        )
        for run in call.runs:
            run.outcome = RunAlone()
        return []

    def _incomplete(self, call: _Call, error: Incomplete) -> Parts:
        if call.is_made_once:
            return self._break_all(call, error.runs, error)
        silent = set(error.runs)
        others = [run for run in call.runs if run not in silent]
        log.warning(
            "%s: %d of %d items have no outcome and are called again without the others: %s: %s",
            call.step_type.name,
            len(silent),
            len(call.runs),
            error.runs[0].tx_id,
            error,
            extra=error.runs[0].about("step.broken"),
        )
        if call.is_sql:
            _forget(call.runs)
        if not others:
            return _halves(error.runs)
        return [others, error.runs] if call.is_sql else [error.runs]

    def _broken(self, call: _Call, error: Exception) -> Parts:
        if call.is_made_once:
            return self._break_all(call, call.runs, error)
        _forget(call.runs)
        log.warning(
            "%s broke for %d items and runs again in halves: %s",
            call.step_type.name,
            len(call.runs),
            shown(error).partition("\n")[0],
            extra=call.runs[0].about("step.broken"),
        )
        return _halves(call.runs)

    def _break_all(self, call: _Call, runs: list[Run], error: Exception) -> Parts:
        for run in runs:
            self._break(call, run, error)
        return []

    def _break(self, call: _Call, run: Run, error: Exception) -> None:
        """The outcome of one that broke alone."""
        if call.purpose == "probe" and isinstance(error, SwitchNotKept):
            outcome: Outcome = Unanswered(clean_note(str(error)))
        elif isinstance(error, BrokenBatch | StepError) and not isinstance(
            error, StepTimeout | SwitchNotKept
        ):
            name = call.step_type.name
            log.error("%s: %s: %s", name, run.tx_id, error, extra=run.about("step.broken"))
            outcome = Broken(clean_note(f"{name}: {error}"))
        else:
            outcome = self._caller.raised(run, error)
        if call.purpose == "probe" and isinstance(outcome, Broken | Ended):
            outcome = Unanswered(outcome.note)
        run.outcome = outcome
        self._caller.report_held(run)


def _fresh(runs: Sequence[Run], effects: Effects) -> list[Run]:
    """Those that may take effect now; the others have their outcome."""
    fresh = []
    for run in runs:
        run.held_reports = []
        run.outcome = known_outcome(run, effects)
        if run.outcome is None:
            fresh.append(run)
    return fresh


def _outputs(runs: Sequence[Run]) -> dict[str, Json | None]:
    """Of those that took effect; what failed, sleeps or is tried again has none to record."""
    return {
        run.tx_id: run.at_rest(run.outcome.data) for run in runs if isinstance(run.outcome, Output)
    }


def _halves(runs: list[Run]) -> Parts:
    middle = len(runs) // 2
    return [runs[:middle], runs[middle:]]


def _forget(runs: Sequence[Run]) -> None:
    """What was said and reported counts no more: they are called again."""
    for run in runs:
        run.outcome = run.held_reports = None
