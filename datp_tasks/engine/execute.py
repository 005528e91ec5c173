"""Calling user code: the only place where that happens.

Whatever a function does (returns, raises, hangs) becomes one Outcome of a closed list.
"""

from __future__ import annotations

import asyncio
import copy
import logging
from collections.abc import Callable
from dataclasses import replace
from functools import lru_cache
from typing import Any

from sqlalchemy import Connection, Engine
from sqlalchemy.exc import OperationalError

from datp_tasks.archive.effects import effect
from datp_tasks.archive.engine import is_away
from datp_tasks.clock import Clock
from datp_tasks.engine.context import Hands, StepContext
from datp_tasks.engine.outcomes import (
    Again,
    Away,
    Broken,
    Doubt,
    Ended,
    Lost,
    Outcome,
    Output,
    Unanswered,
)
from datp_tasks.engine.registry import Registry, StepType
from datp_tasks.engine.run import Run
from datp_tasks.engine.time_limit import TimeLimit
from datp_tasks.errors import StaleFence, StepTimeout
from datp_tasks.failpoints import reach
from datp_tasks.model.notes import clean_note
from datp_tasks.model.outcome import Abort, Call, Done, DontKnow, Fail, NotDone, Sleep
from datp_tasks.model.payload import Json, NotJson, checked
from datp_tasks.model.status import Status
from datp_tasks.settings import Settings

log = logging.getLogger("datp.step")

#: Makes the hands of one run: what its step can do while it runs.
HandsOf = Callable[[Run], Hands]


class Performer:
    def __init__(
        self,
        settings: Settings,
        clock: Clock,
        engine: Engine,
        registry: Registry,
        hands_of: HandsOf,
        report_held: Callable[[Run], None],
    ) -> None:
        self._settings = settings
        self._clock = clock
        self._engine = engine
        self._registry = registry
        self._hands_of = hands_of
        self._report_held = report_held
        self._time_limit = TimeLimit()

    def is_async(self, run: Run) -> bool:
        """Whether this action can share the event loop with others."""
        step_type = self._registry.get(run.action.step_type)
        function = step_type.rollback_function if run.action.kind == "undo" else step_type.function
        return _is_async(function) and not self._must_ask(run)

    def is_unsafe(self, run: Run) -> bool:
        """Whether a crash in the middle of this action leaves a doubt."""
        step_type = self._registry.get(run.action.step_type)
        safe = step_type.on_crash == "rerun" or step_type.transactional
        return run.action.kind == "run" and not safe

    def timeout_s(self, run: Run) -> float:
        step = run.action.step
        step_type = self._registry.get(run.action.step_type)
        given = step.timeout_s if step and step.timeout_s is not None else step_type.timeout_s
        limit_s = self._settings.step_timeout_s if given is None else given
        left_s = run.left_s if run.action.kind == "run" else None
        # What runs after the expiry is there to find out what a lost worker did.
        return limit_s if left_s is None or left_s <= 0 else min(limit_s, left_s)

    def perform(self, run: Run) -> Outcome:
        """Run or undo one step in this thread."""
        outcome = self._performed(run)
        if run.held_reports is not None:
            self._report_held(run)
        return outcome

    def _performed(self, run: Run) -> Outcome:
        step_type = self._registry.get(run.action.step_type)
        asks = self._must_ask(run)
        try:
            with self._time_limit(self.timeout_s(run)):
                if asks:
                    return self._probe(run, step_type)
                if step_type.transactional:
                    return self._transactional(run, step_type)
                return self._sorted(run, self._call(run, step_type, None))
        except Exception as error:
            outcome = self._raised(run, error)
            if asks and isinstance(outcome, Broken | Ended):
                return Unanswered(outcome.note)
            return outcome

    async def perform_async(self, run: Run) -> Outcome:
        """Run or undo one step on the event loop, beside others."""
        step_type = self._registry.get(run.action.step_type)
        limit = asyncio.timeout(self.timeout_s(run))
        try:
            async with limit:
                return self._sorted(run, await self._call(run, step_type, None))
        except (Exception, asyncio.CancelledError, SystemExit) as error:
            # The last two would end the event loop, and with it every step beside this one.
            if limit.expired():
                return self._timed_out(run)
            return self._raised(run, error)

    def tell_late(self, run: Run, name: str, data: Json) -> str:
        """Call the step type that wants to know of a late success; what went wrong, if it did."""
        context = replace(self._context(run, None), data=data, idempotency_key=f"{run.tx_id}:late")
        try:
            # Its own limit: the watchman may come here while a step runs under the other one.
            with TimeLimit()(self._settings.step_timeout_s):
                _finished(self._registry.get(name).function(context, context.data))
        except Exception as error:
            about = run.about("step.broken")
            log.warning("%s: the step %s broke", run.tx_id, name, exc_info=True, extra=about)
            return clean_note(f"; its onLate step {name} broke: {_shown(error)}")
        return ""

    def _timed_out(self, run: Run) -> Broken:
        if run.is_overdue and run.action.kind == "run":
            return Broken("the transaction expired while the step ran")
        return Broken(f"the step ran longer than {self.timeout_s(run):g} s")

    def _must_ask(self, run: Run) -> bool:
        """After a crash, a step that is not safe to run again is not simply run again."""
        return run.crashed and self.is_unsafe(run)

    def _probe(self, run: Run, step_type: StepType) -> Outcome:
        where = f"step {run.action.path} ({step_type.name})"
        if step_type.on_crash == "review" or step_type.probe_function is None:
            return Doubt(f"a worker was lost in the middle of {where}; a person must decide")
        answer = _finished(step_type.probe_function(self._context(run, None), run.state.data))
        match answer:
            case Done(output=output):
                return self._sorted(run, None if output is None else dict(output))
            case NotDone():
                return Again()
            case DontKnow(note=note):
                return Doubt(clean_note(f"the probe of {where} does not know: {note}"))
            case _:
                return Doubt(f"the probe of {where} must return Done, NotDone or DontKnow")

    def _transactional(self, run: Run, step_type: StepType) -> Outcome:
        try:
            return self._in_transaction(run, step_type)
        except OperationalError as error:
            if not is_away(error):
                raise
        try:
            # Whether the commit happened is unknown; the second try finds out first.
            return self._in_transaction(run, step_type)
        except OperationalError as error:
            if not is_away(error):
                raise
            about = run.about("tx.waits")
            log.warning("SQL is away; %s waits in step %s", run.tx_id, run.action.path, extra=about)
            return Away()

    def _in_transaction(self, run: Run, step_type: StepType) -> Outcome:
        idle_s = self.timeout_s(run) + self._settings.step_kill_grace_s
        run.held_reports = []
        with effect(
            self._engine,
            self._clock,
            tx_id=run.tx_id,
            step_key=run.idempotency_key,
            fence=run.fence,
            idle_s=idle_s,
        ) as happening:
            if happening.recorded is not None:
                return Output(happening.recorded[0])
            outcome = self._sorted(run, self._call(run, step_type, happening.connection))
            if isinstance(outcome, Output):
                happening.output = (outcome.data,)
                reach("effect.before_commit")
        reach("effect.after_commit")
        return outcome

    def _call(self, run: Run, step_type: StepType, sql: Connection | None) -> Any:
        context = self._context(run, sql)
        if run.action.kind == "run":
            return step_type.function(context, context.data)
        assert run.action.undo is not None
        if step_type.rollback_function is None:
            raise StepTypeHasNoRollback(step_type.name)
        output = copy.deepcopy(run.action.undo.output)
        return step_type.rollback_function(context, context.data, output)

    def _sorted(self, run: Run, returned: object) -> Outcome:
        """What a function returned, as an Outcome."""
        returned = _finished(returned)
        if run.action.kind == "undo" or returned is None:
            return Output(None)
        if isinstance(returned, Call):
            data = returned.data
            return Call(returned.pipeline, None if data is None else self._json(dict(data)))
        if isinstance(returned, Sleep):
            return Sleep(min(returned.seconds, self._settings.sleep_s_max), returned.switch)
        return Output(self._json(returned))

    def _raised(self, run: Run, error: BaseException) -> Outcome:
        if run.action.kind == "run" and isinstance(error, Fail | Abort):
            status = Status.FAILED if isinstance(error, Fail) else Status.ABORTED
            try:
                output = None if error.output is None else self._json(error.output)
            except NotJson as not_json:
                note = f"{error.note} (its output was dropped: {not_json})"
                return Ended(status, clean_note(note), None)
            return Ended(status, clean_note(str(error.note)), output)
        if isinstance(error, StaleFence):
            return Lost()
        if isinstance(error, NotJson):
            note = f"the step must return a JSON object, None, Sleep or Call: {error}"
            return Broken(clean_note(note))
        if isinstance(error, StepTimeout):
            return self._timed_out(run)
        expected = isinstance(error, StepTypeHasNoRollback)
        log.warning(
            "%s: step %s broke",
            run.tx_id,
            run.action.path,
            exc_info=not expected,
            extra=run.about("step.broken"),
        )
        note = _shown(error)
        return Broken(clean_note(note if expected else f"{type(error).__name__}: {note}"))

    def _json(self, value: object) -> Json:
        clean, _ = checked(
            value,
            what="output",
            bytes_max=self._settings.output_bytes_max,
            depth_max=self._settings.input_depth_max,
        )
        return clean

    def _context(self, run: Run, sql: Connection | None) -> StepContext:
        undo = run.action.undo
        data = undo.data if undo else run.state.data
        return StepContext(
            tx_id=run.tx_id,
            owner=run.fields.get("owner", ""),
            external_id=run.fields.get("externalId"),
            metadata=run.metadata,
            params=_copy(run.action.step.params) if run.action.step else {},
            # A copy: what a step does to its input must not reach the state.
            data=_copy(data),
            attempt=run.state.attempt,
            sleeps=run.state.sleeps,
            idempotency_key=run.idempotency_key,
            deadline=run.deadline,
            _fence=run.fence,
            _switches=run.switches,
            _hands=self._hands_of(run),
            _sql=sql,
        )


class StepTypeHasNoRollback(Exception):
    """A step was done by a release that could undo it; this one cannot."""

    def __init__(self, name: str) -> None:
        super().__init__(f"the step type {name!r} has no rollback on this node")


@lru_cache(maxsize=1_000)
def _is_async(function: object) -> bool:
    """Asked for every transaction of every round, and the answer takes a while to find."""
    return asyncio.iscoroutinefunction(function)


def _finished(returned: object) -> object:
    """An async function that ends up in a thread of its own runs to its end there."""
    if asyncio.iscoroutine(returned):
        return asyncio.run(returned)
    return returned


def _shown(error: BaseException) -> str:
    try:
        return str(error)
    except Exception:
        return "(it cannot be shown)"


def _copy(value: Any) -> Any:
    """A copy of JSON, much quicker than deepcopy."""
    if isinstance(value, dict):
        return {key: _copy(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_copy(item) for item in value]
    return value
