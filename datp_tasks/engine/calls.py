"""Calling user code: the only place where that happens.

Whatever a function does (returns, raises, hangs) becomes one Outcome of a closed list.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from datp_tasks.engine.context import StepContext, StepServices
from datp_tasks.engine.outcomes import (
    Broken,
    Doubt,
    Ended,
    NotStarted,
    Outcome,
    Output,
    RecordRefused,
    Stopped,
    SwitchNotKept,
    Unanswered,
    Unavailable,
)
from datp_tasks.engine.registry import Registry, StepFunction, StepType
from datp_tasks.engine.run import Run
from datp_tasks.engine.time_limit import TimeLimit
from datp_tasks.errors import StaleFence, StepError, StepTimeout, TransactionStopped
from datp_tasks.model import payload
from datp_tasks.model.notes import clean_note
from datp_tasks.model.outcome import Abort, Call, Done, DontKnow, Fail, NotDone, Sleep
from datp_tasks.model.payload import Json, NotJson, checked, copied
from datp_tasks.model.plan import Action
from datp_tasks.model.status import Status
from datp_tasks.observe.logs import without_secrets
from datp_tasks.settings import Settings

if TYPE_CHECKING:
    from datp_tasks.engine.observer import Observer
    from datp_tasks.record.database import Connection

log = logging.getLogger("datp.step")

#: What most steps that only look, wait or check come to.
UNCHANGED = Output(None)


class StepCaller:
    """Calls the functions of step types, one transaction at a time."""

    def __init__(
        self, settings: Settings, registry: Registry, services: StepServices, observer: Observer
    ) -> None:
        self._settings = settings
        self._registry = registry
        self.services = services
        self._observer = observer
        self.time_limit = TimeLimit()
        #: The action that was asked about last, its type and its limit: neighbours share them.
        self._last: tuple[Action | None, StepType | None, float] = (None, None, 0.0)
        #: Run or undo a step in this thread; errors of the SQL transaction are the caller's.
        self.call = self._traced_call if observer.traces else self._limited

    # What a call is.

    def type_of(self, run: Run) -> StepType:
        return self._about(run.action)[0]

    def must_ask(self, run: Run) -> bool:
        """After a crash, a step that is not safe to run again is not simply run again."""
        return run.crashed and self.is_unsafe(run)

    def is_unsafe(self, run: Run) -> bool:
        """Whether a crash in the middle of this action leaves a doubt."""
        return run.action.kind == "run" and self.type_of(run).is_unsafe

    def function_of(self, run: Run, step_type: StepType) -> StepFunction:
        if run.action.kind == "run":
            return step_type.function
        if step_type.rollback_function is None:
            raise StepTypeHasNoRollback(step_type.name)
        return step_type.rollback_function

    def is_async(self, run: Run) -> bool:
        step_type = self.type_of(run)
        undo = run.action.kind == "undo"
        return is_async(step_type.rollback_function if undo else step_type.function)

    def timeout_s(self, run: Run) -> float:
        action = run.action
        _, limit_s = self._about(action)
        if run.expires_at_ms is None or action.kind != "run":
            return limit_s
        left_s = run.left_s
        # What runs after the expiry is there to find out what a lost worker did.
        return limit_s if left_s is None or left_s <= 0 else min(limit_s, left_s)

    def _about(self, action: Action) -> tuple[StepType, float]:
        """The type of its step, and for how long that may run if nothing expires."""
        last, step_type, limit_s = self._last
        if last is action and step_type is not None:
            return step_type, limit_s
        step_type = self._registry.get(action.step_type)
        limits = (action.step.timeout_s if action.step else None, step_type.timeout_s)
        limit_s = next((each for each in limits if each is not None), self._settings.step_timeout_s)
        if action.undo is None:
            # One that undoes is made for its transaction alone, and holds the data of a step.
            self._last = (action, step_type, limit_s)
        return step_type, limit_s

    # Calling.

    def _traced_call(self, run: Run, sql: Connection | None = None) -> Outcome:
        with self._observer.step(run) as span:
            try:
                outcome = self._limited(run, sql)
            except Exception as error:
                if run.action.kind != "run" or not isinstance(error, Fail | Abort):
                    self._observer.step_ended(span, Broken(type(error).__name__))
                    raise
                # An end that the step asked for is no exception to those who look on.
                outcome = self.ended(error)
            self._observer.step_ended(span, outcome)
        return outcome

    def _limited(self, run: Run, sql: Connection | None = None) -> Outcome:
        step_type, limit_s = self._about(run.action)
        # Most have no expiry, and then one look is enough.
        if run.expires_at_ms is not None:
            limit_s = self.timeout_s(run)
        with self.time_limit(limit_s):
            return self.returned(run, self._called(run, step_type, sql))

    def report_held(self, run: Run) -> None:
        """What a transactional step has reported, now that its row is free."""
        if run.held_reports is not None:
            self.services.report_held(run)

    @contextmanager
    def traced(self, runs: Sequence[Run]) -> Iterator[None]:
        """A span for each of those that are called together."""
        if not self._observer.traces:
            yield
            return
        with ExitStack() as stack:
            spans = [stack.enter_context(self._observer.step(run)) for run in runs]
            yield
            for run, span in zip(runs, spans, strict=True):
                if run.outcome is not None:
                    self._observer.step_ended(span, run.outcome)

    async def call_async(self, run: Run) -> Outcome:
        """Run or undo a step on the event loop, beside others."""
        limit = asyncio.timeout(self.timeout_s(run))
        with self._observer.step(run) as span:
            try:
                async with limit:
                    returned = await self._called(run, self.type_of(run), None)
                    outcome = self.returned(run, returned)
            except (Exception, asyncio.CancelledError, SystemExit) as error:
                # The last two would end the event loop, and with it every step beside this one.
                outcome = self.timed_out(run) if limit.expired() else self.raised(run, error)
            self._observer.step_ended(span, outcome)
        return outcome

    def probe(self, run: Run) -> Outcome:
        """Ask what became of a step whose worker was lost in the middle of it."""
        try:
            with self.time_limit(self.timeout_s(run)):
                return self._probed(run, self.type_of(run))
        except SwitchNotKept as error:
            return Unanswered(clean_note(str(error)))
        except Exception as error:
            outcome = self.raised(run, error)
            return Unanswered(outcome.note) if isinstance(outcome, Broken | Ended) else outcome

    def _probed(self, run: Run, step_type: StepType) -> Outcome:
        if must_be_reviewed(step_type):
            return review(run)
        assert step_type.probe_function is not None
        context = StepContext(run, self.services)
        return self.answered(run, finished(step_type.probe_function(context, context.data)))

    def answered(self, run: Run, answer: object) -> Outcome:
        """What a probe answered, as an Outcome."""
        match answer:
            case Done(output=output):
                return self.returned(run, None if output is None else dict(output))
            case NotDone():
                return NotStarted()
            case DontKnow(note=note):
                return Doubt(clean_note(f"the probe of {run.action.where} does not know: {note}"))
            case _:
                return Doubt(
                    f"the probe of {run.action.where} must return Done, NotDone or DontKnow"
                )

    def tell_late(self, run: Run, name: str, data: Json) -> str:
        """Call the step type that wants to know of a late success; what went wrong, if it did."""
        context = StepContext(run, self.services, data=data, idempotency_key=f"{run.tx_id}:late")
        # Its own limit: the guard may come here while a step runs under the other one.
        limit = TimeLimit()
        try:
            step_type = self._registry.get(name)
            if step_type.vector:
                raise StepError("it is a vector step; an onLate step is called as (ctx, data)")
            with limit(self._settings.step_timeout_s):
                finished(step_type.function(context, context.data))
        except Exception as error:
            about = run.about("step.broken")
            log.warning("%s: the step %s broke", run.tx_id, name, exc_info=True, extra=about)
            return clean_note(f"; its onLate step {name} broke: {shown(error)}")
        finally:
            limit.disarm()
        return ""

    def _called(self, run: Run, step_type: StepType, sql: Connection | None) -> Any:
        context = StepContext(run, self.services, sql)
        function = self.function_of(run, step_type)
        if run.action.undo is None:
            return function(context, context.data)
        return function(context, context.data, copied(run.action.undo.output))

    # What became of a call.

    def returned(self, run: Run, value: object) -> Outcome:
        """What a function returned, as an Outcome."""
        if value is None:
            return UNCHANGED
        value = finished(value)
        if run.action.kind == "undo" or value is None:
            return UNCHANGED
        if isinstance(value, Call):
            data = value.data
            return Call(value.pipeline, None if data is None else self.json(dict(data)))
        if isinstance(value, Sleep):
            return Sleep(min(value.seconds, Sleep.SECONDS_MAX), value.switch)
        if isinstance(value, BaseException):
            name = type(value).__name__
            return Broken(clean_note(f"the step returned {name}(…); write `raise {name}(…)`"))
        return Output(*self._checked(value))

    def raised(self, run: Run, error: BaseException) -> Outcome:
        """What a function raised, as an Outcome."""
        if run.action.kind == "run" and isinstance(error, Fail | Abort):
            return self.ended(error)
        if isinstance(error, StaleFence):
            return RecordRefused()
        if isinstance(error, SwitchNotKept):
            log.warning("%s waits in step %s: %s", run.tx_id, run.action.path, error)
            return Unavailable(is_tried=True)
        if isinstance(error, NotJson):
            note = f"the step must return a JSON object, None, Sleep or Call: {error}"
            return Broken(clean_note(note))
        if isinstance(error, StepTimeout):
            return self.timed_out(run)
        if isinstance(error, TransactionStopped) and run.stop_found is not None:
            return Stopped(run.stop_found.request, mid_way=True)
        about = run.about("step.broken")
        if isinstance(error, TOLD):
            log.warning("%s: step %s broke: %s", run.tx_id, run.action.path, error, extra=about)
            is_ours = isinstance(error, StepTypeHasNoRollback)
            said = shown(error)
            return Broken(clean_note(said if is_ours else f"{type(error).__name__}: {said}"))
        note = run.note_error(type(error).__name__, without_secrets(shown(error)))
        path = run.action.path
        log.warning("%s: step %s broke: %s", run.tx_id, path, note, exc_info=error, extra=about)
        return Broken(note)

    def ended(self, error: Fail | Abort) -> Ended:
        status = Status.FAILED if isinstance(error, Fail) else Status.ABORTED
        try:
            output = None if error.output is None else self.json(error.output)
        except NotJson as not_json:
            note = f"{error.note} (its output was dropped: {not_json})"
            return Ended(status, clean_note(note), None, error.code, error.params)
        return Ended(status, clean_note(str(error.note)), output, error.code, error.params)

    def timed_out(self, run: Run) -> Broken:
        if run.is_overdue and run.action.kind == "run":
            return Broken("the transaction expired while the step ran")
        return Broken(f"the step ran longer than {self.timeout_s(run):g} s")

    def json(self, value: object) -> Json:
        return self._checked(value)[0]

    def _checked(self, value: object) -> tuple[Json, str]:
        return checked(
            value, what="output", bytes_max=payload.OUTPUT_BYTES_MAX, depth_max=payload.DEPTH_MAX
        )


class StepTypeHasNoRollback(Exception):
    """A step was done by a release that could undo it; this one cannot."""

    def __init__(self, name: str) -> None:
        super().__init__(f"the step type {name!r} has no rollback on this node")


#: What these say was written for people, by us or by the author of the step: its client may see it.
TOLD = (StepTypeHasNoRollback, StepError, Fail, Abort)


def must_be_reviewed(step_type: StepType) -> bool:
    return step_type.on_crash == "review" or step_type.probe_function is None


def review(run: Run) -> Doubt:
    return Doubt(f"a worker was lost in the middle of {run.action.where}; a person must decide")


@lru_cache(maxsize=1_000)
def is_async(function: object) -> bool:
    """Asked for every transaction of every round, and the answer takes a while to find."""
    return asyncio.iscoroutinefunction(function)


def finished(returned: object) -> object:
    """An async function that ends up in a thread of its own runs to its end there."""
    if asyncio.iscoroutine(returned):
        return asyncio.run(returned)
    return returned


def shown(error: BaseException) -> str:
    try:
        return str(error)
    except Exception:
        return "(it cannot be shown)"
