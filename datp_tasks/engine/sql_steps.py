"""Ordinary transactional steps: those of a vector share one SQL transaction.

Each runs behind a savepoint of its own; one statement holds the rows and finds earlier effects,
one records the new ones, one commit makes them all. What cannot share (it deadlocks, waits for a
lock, times out, or breaks the transaction) is undone as a whole and run again one at a time.
Exactly once holds either way: an effect and its record are one commit, under one primary key.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from itertools import takewhile

from datp_tasks.engine.calls import StepCaller
from datp_tasks.engine.outcomes import Broken, Outcome, Output, Unavailable
from datp_tasks.engine.points_of_no_return import known_outcome, wanting
from datp_tasks.engine.round import Round
from datp_tasks.engine.run import Run
from datp_tasks.errors import StepTimeout
from datp_tasks.model.payload import Json
from datp_tasks.record.effects import Effects, EffectStore, WantedEffect, is_passing, is_unavailable
from datp_tasks.record.sql_errors import DBAPIError, OperationalError
from datp_tasks.settings import Settings

log = logging.getLogger("datp.step")

#: A neighbour's lock is not waited for any longer: both may hold what the other wants, and
#: PostgreSQL notices that only after a second. Alone, a step waits as long as it may.
SHARED_LOCK_MS = 50
#: Tries of a step alone while PostgreSQL says nothing about the step itself.
ALONE_TRIES = 3
#: By how much the share grows after a step alone: after ten of them, two are tried together.
GROWTH_ALONE = 0.1


class CannotShare(Exception):
    """The shared transaction is undone; its steps run again one at a time."""


class TimedOut(Exception):
    """A step was over its time limit, in the middle of a statement perhaps."""

    def __init__(self, run: Run) -> None:
        super().__init__(f"{run.tx_id} timed out")
        self.run = run


class SqlSteps:
    def __init__(self, settings: Settings, effects: EffectStore, caller: StepCaller) -> None:
        self._settings = settings
        self._effects = effects
        self._caller = caller
        #: By step type: how many share a transaction. Halved when they could not.
        self._share_max: dict[str, float] = {}

    def run(self, round: Round) -> None:
        """Run all that wait, of one step type; they are done when their effects are committed."""
        alone: set[Run] = set()
        while waiting := round.waiting():
            name = waiting[0].action.step_type
            share_max = self._share_max.get(name, float(self._settings.vector_max))
            part = list(takewhile(lambda run: run not in alone, waiting))[: int(share_max)]
            if len(part) < 2:
                self._next_alone(round)
                if waiting[0] not in alone:
                    self._share_max[name] = self._grown(share_max, GROWTH_ALONE)
                continue
            try:
                self._together(round, part)
            except CannotShare as error:
                alone.update(part)
                self._share_max[name] = max(1.0, len(part) // 2)
                log.info("%d steps %s run one at a time: %s", len(part), name, error)
            else:
                # Slowly up again: what made them wait for each other is usually still there.
                self._share_max[name] = self._grown(share_max, 1)

    def _grown(self, share_max: float, by: float) -> float:
        return min(self._settings.vector_max, share_max + by)

    # Many in one SQL transaction.

    def _together(self, round: Round, part: Sequence[Run]) -> None:
        idle_s = max(map(self._caller.timeout_s, part)) + self._settings.step_kill_grace_s
        wanted = [WantedEffect(run.tx_id, run.idempotency_key, run.fence) for run in part]
        try:
            with self._effects.open(wanted, idle_s=idle_s, lock_ms=SHARED_LOCK_MS) as effects:
                outputs = self._in_turn(round, effects, len(part))
                effects.record(outputs)
                effects.pass_points(wanting([run for run in part if run.tx_id in outputs]))
                effects.is_to_commit = round.seal()
        except TimedOut as error:
            error.run.outcome = self._caller.timed_out(error.run)
            self._give_back(round, [error.run])
            self._caller.report_held(error.run)
            raise CannotShare(error) from error
        except Exception as error:
            # Whatever it is, alone each of them meets only its own troubles.
            self._give_back(round)
            raise CannotShare(_reason(error)) from error
        if not effects.is_to_commit:
            self._give_back(round)
            raise CannotShare("its neighbours were handed to other workers")
        for run in round.committed():
            self._caller.report_held(run)

    def _in_turn(self, round: Round, effects: Effects, count: int) -> dict[str, Json | None]:
        """Run so many behind savepoints; the outputs of those that took effect."""
        outputs: dict[str, Json | None] = {}
        is_first = True
        for _ in range(count):
            run = round.next(self._caller.timeout_s, is_pending=True)
            if run is None:
                break
            run.held_reports = []
            run.outcome = known_outcome(run, effects)
            if run.outcome is None:
                effects.open_item(is_first=is_first)
                is_first = False
                run.outcome = self._in_savepoint(run, effects)
                if isinstance(run.outcome, Output):
                    outputs[run.tx_id] = run.at_rest(run.outcome.data)
        round.finish(is_pending=True)
        return outputs

    def _in_savepoint(self, run: Run, effects: Effects) -> Outcome:
        try:
            outcome = self._caller.call(run, effects.connection)
        except StepTimeout:
            raise TimedOut(run) from None
        except OperationalError:
            # A deadlock, a lock that is waited for, or the connection: none of it the step's own.
            raise
        except Exception as error:
            outcome = self._caller.raised(run, error)
        effects.check()
        if not isinstance(outcome, Output):
            effects.undo_item()
        elif not effects.is_sound:
            effects.undo_item()
            outcome = Broken("a statement of the step failed, and the step went on")
        return outcome

    def _give_back(self, round: Round, done: Sequence[Run] = ()) -> None:
        """What was not committed has no outcome, and waits once more."""
        for run in round.undone(done):
            run.outcome = None
            run.held_reports = None

    # One in an SQL transaction of its own.

    def _next_alone(self, round: Round) -> None:
        run = round.next(self._caller.timeout_s)
        if run is not None:
            run.outcome = self._alone(run, round)
            self._caller.report_held(run)
        round.finish()

    def _alone(self, run: Run, round: Round) -> Outcome:
        """One step in a transaction of its own."""
        for _ in range(ALONE_TRIES):
            try:
                return self._in_transaction(run, round)
            except DBAPIError as error:
                if not is_passing(error):
                    return self._caller.raised(run, error)
                # Whether the commit happened may be unknown; the next try finds out first.
                last = error
            except Exception as error:
                return self._caller.raised(run, error)
        if not is_unavailable(last):
            return self._caller.raised(run, last)
        about = run.about("tx.waits")
        path = run.action.path
        log.warning("PostgreSQL is unavailable; %s waits in step %s", run.tx_id, path, extra=about)
        return Unavailable()

    def _in_transaction(self, run: Run, round: Round) -> Outcome:
        limit_s = self._caller.timeout_s(run)
        idle_s = limit_s + self._settings.step_kill_grace_s
        wanted = [WantedEffect(run.tx_id, run.idempotency_key, run.fence)]
        run.held_reports = []
        with self._effects.open(wanted, idle_s=idle_s, lock_ms=0) as effects:
            known = known_outcome(run, effects)
            if known is not None:
                return known
            # Waiting for the row, and tries before this one, are not the step's own time.
            round.extend(limit_s)
            outcome = self._caller.call(run, effects.connection)
            effects.check()
            if isinstance(outcome, Output):
                effects.record({run.tx_id: run.at_rest(outcome.data)})
                effects.pass_points([run.tx_id] if run.wants_point else [])
                effects.is_to_commit = True
        return outcome


def _reason(error: Exception) -> str:
    return str(getattr(error, "orig", error)).strip().partition("\n")[0] or type(error).__name__
