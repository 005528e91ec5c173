"""Points of no return, as a hop meets them: SQL must agree before a step runs that is one.

A step that is transactional has its point recorded in the commit of its effects; any other one by
a statement of its own before it is called. A stop that was recorded first wins: the step is not
called, and its transaction turns around. Afterwards stop requests and the clock are not heeded.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence

from datp_tasks.engine.outcomes import (
    Broken,
    Ended,
    Outcome,
    Output,
    RecordRefused,
    Stopped,
    Unavailable,
)
from datp_tasks.engine.registry import Registry
from datp_tasks.engine.run import Run
from datp_tasks.errors import StaleFence, StepError, TransactionStopped
from datp_tasks.failpoints import reach
from datp_tasks.model.state import PointKind, bound
from datp_tasks.record.database import is_outage
from datp_tasks.record.effects import Effects
from datp_tasks.record.points import PointClaim, Points
from datp_tasks.record.sql_errors import OperationalError

log = logging.getLogger("datp.hop")


class PointsOfNoReturn:
    def __init__(self, points: Points, registry: Registry) -> None:
        self._points = points
        self._registry = registry

    # When a transaction is claimed.

    def admit(self, runs: Sequence[Run]) -> None:
        """What SQL knows of those that are asked to stop, whose time is over, or that were lost."""
        asked = [run for run in runs if run.stop_request and run.state.ending is None]
        if asked:
            self._confirm(asked)
        unsure = [run for run in runs if _may_be_bound(run)]
        if unsure:
            self._bind(unsure)

    def may_stop(self, run: Run, request: str) -> bool:
        """Whether one that was asked to stop turns around; that is recorded first."""
        run.stop_request = request
        self._confirm([run])
        return not run.ignores_stop

    def _confirm(self, runs: Sequence[Run]) -> None:
        """SQL decides between the request and a point of no return."""
        for run in runs:
            run.ignores_stop = run.state.point is not None
            run.waits_for_sql = False
        unsure = [run for run in runs if not run.ignores_stop]
        if not unsure:
            return
        try:
            refused = self._points.confirm_stops(
                [(run.tx_id, run.fence, run.stop_request) for run in unsure]
            )
        except OperationalError as error:
            if not is_outage(error):
                raise
            log.warning("PostgreSQL is unavailable; %d are stopped later", len(unsure))
            for run in unsure:
                run.ignores_stop = run.waits_for_sql = True
            return
        for run in unsure:
            run.ignores_stop = run.tx_id in refused

    def _bind(self, runs: Sequence[Run], *, is_here: bool = False) -> None:
        """What SQL has bound neither expires nor goes back by itself, also if Redis forgot."""
        try:
            kinds = self._points.bound([run.tx_id for run in runs])
        except OperationalError as error:
            if not is_outage(error):
                raise
            for run in runs:
                run.waits_for_sql = True
            return
        for run in runs:
            if run.tx_id in kinds:
                kind = kinds[run.tx_id]
                # Of a step that crashed before Redis had it, or that is forwarded, it is known
                # which one did it. Else as if one before had, which undoes least.
                is_this = kind == "forward" or (run.crashed and "recreated" not in run.fields)
                is_this = is_this or is_here
                run.change(bound(kind, run.state.path if is_this else ""))

    # Before steps are called.

    def pass_points(self, runs: Sequence[Run]) -> list[Run]:
        """Record what the steps of these mean; those that must not be called, with outcomes."""
        due = [run for run in runs if run.action.binds and self._kind_due(run) is not None]
        back = [run for run in runs if run.state.point is not None and self._is_back(run)]
        if not due and not back:
            return []
        try:
            self._pass(due)
            self._end_forward(back)
        except OperationalError as error:
            if not is_outage(error):
                raise
            for run in (*due, *back):
                run.outcome = Unavailable()
        reach("hop.after_point")
        return [run for run in (*due, *back) if run.outcome is not None]

    def _kind_due(self, run: Run) -> PointKind | None:
        step, point = run.action.step, run.state.point
        if step is None or not run.action.binds:
            return None
        if point is not None and (point.kind == "final" or point.is_at(run.action.path)):
            return None
        if step.forwards:
            return "forward"
        # That of a transactional step is recorded with its effects.
        return None if self._registry.get(step.type).transactional else "final"

    def _is_back(self, run: Run) -> bool:
        """Another system has answered, and what comes now is not the point of no return."""
        step, point = run.action.step, run.state.point
        if point is None or point.kind != "forward" or step is None or run.action.kind != "run":
            return False
        return not (step.final_from or step.forwards or point.is_at(run.action.path))

    def _pass(self, runs: Sequence[Run]) -> None:
        if not runs:
            return
        kinds = {run.tx_id: self._kind_due(run) or "final" for run in runs}
        claims = [PointClaim(run.tx_id, run.fence, kinds[run.tx_id]) for run in runs]
        passages = self._points.pass_many(claims)
        for run in runs:
            passage = passages.get(run.tx_id)
            if passage is True:
                run.change(bound(kinds[run.tx_id], run.action.path))
            elif passage is None or passage is False:
                run.outcome = RecordRefused()
            else:
                run.outcome = Stopped(passage.request)

    def _end_forward(self, runs: Sequence[Run]) -> None:
        if not runs:
            return
        self._points.end_forward([(run.tx_id, run.fence) for run in runs])
        for run in runs:
            run.change(bound(None, ""))
            if run.is_overdue:
                run.outcome = Stopped(None)

    # While a step runs.

    def commit_to_finish(self, run: Run, *, in_sql: bool) -> None:
        """The step says that it is the point of no return."""
        if run.action.kind != "run" or run.state.ending is not None:
            raise StepError("commit_to_finish() is for steps, not for what undoes them")
        if run.state.point is not None and run.state.point.kind == "final":
            return
        if in_sql:
            if run.stop_found is not None:
                raise TransactionStopped
            run.wants_point = True
            return
        run.asked_for_point = True
        passage = self._points.pass_many([PointClaim(run.tx_id, run.fence, "final")]).get(run.tx_id)
        if passage is None or passage is False:
            raise StaleFence
        if passage is not True:
            run.stop_found = passage
            raise TransactionStopped
        run.change(bound("final", run.action.path))

    # After steps were called.

    def look_at_broken(self, runs: Sequence[Run]) -> None:
        """A step that broke, or failed, after it asked for its point may have passed it in SQL:
        that must be known before its transaction is turned around."""
        unsure = [
            run
            for run in runs
            if run.asked_for_point
            and run.state.point is None
            and isinstance(run.outcome, Broken | Ended)
        ]
        if unsure:
            self._bind(unsure, is_here=True)
        for run in unsure:
            if run.waits_for_sql:
                run.waits_for_sql, run.outcome = False, Unavailable()
        for run in runs:
            run.asked_for_point = False


def _may_be_bound(run: Run) -> bool:
    """SQL may have a point of it that its state does not: a crash or a loss came in between."""
    if run.state.point is not None or run.state.ending is not None:
        return False
    return run.is_overdue or run.crashed or "recreated" in run.fields


def known_outcome(run: Run, effects: Effects) -> Outcome | None:
    """What is known of a transactional step before it is called, if that settles it."""
    if run.tx_id not in effects.held:
        return RecordRefused()
    is_undo = run.action.kind == "undo"
    if run.tx_id in effects.recorded:
        point = run.state.point
        if run.tx_id in effects.past_return and not is_undo:
            run.wants_point = point is None or point.kind != "final"
        return Output(run.opened(effects.recorded[run.tx_id]))
    run.stop_found = effects.stops.get(run.tx_id)
    step = run.action.step
    run.wants_point = step is not None and step.final_from and not is_undo
    if run.wants_point and run.stop_found is not None:
        run.wants_point = False
        return Stopped(run.stop_found.request)
    return None


def wanting(runs: Sequence[Run]) -> list[str]:
    """Those whose point of no return is recorded with their effects."""
    return [run.tx_id for run in runs if run.wants_point and isinstance(run.outcome, Output)]
