"""From what a step said to what happens to its transaction: deltas and a move."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Protocol

from datp_tasks.engine.outcomes import (
    AskFirst,
    Broken,
    Doubt,
    Ended,
    NotStarted,
    Outcome,
    Output,
    RecordRefused,
    RunAlone,
    Stopped,
    Unanswered,
    Unavailable,
)
from datp_tasks.engine.registry import Registry, StepType
from datp_tasks.engine.run import Run
from datp_tasks.errors import PipelineError
from datp_tasks.model.notes import clean_note
from datp_tasks.model.outcome import Call, Sleep
from datp_tasks.model.pipeline import CHILD_PIPELINE, PipelineDefinition
from datp_tasks.model.state import (
    CLOSE,
    UNDONE,
    bound,
    called,
    ending,
    erred,
    passed,
    slept,
)
from datp_tasks.model.status import Status
from datp_tasks.model.stop_request import StopRequest
from datp_tasks.model.texts_by_language import message_of
from datp_tasks.settings import Settings

#: Pipelines that call each other in a circle end here.
NESTING_MAX = 16
#: Pause before a step is tried again that PostgreSQL was not there for; it costs no attempt.
UNAVAILABLE_S = 2.0
#: A retry policy with a mistake in it must not try for ever.
RETRY_ATTEMPTS_MAX = 100


@dataclass(frozen=True, slots=True)
class Rest:
    """Sleep for a while: because the step asked for it, or before its next try."""

    seconds: float
    switch: str | None = None


@dataclass(frozen=True, slots=True)
class Park:
    """Only a person, or a later probe, can decide."""

    note: str


@dataclass(frozen=True, slots=True)
class Next:
    """On to whatever the plan says. A child pipeline that starts must let others out first."""

    priority: str = "out"
    #: In a hop of its own, elsewhere: its neighbours must not suffer from it.
    alone: bool = False


@dataclass(frozen=True, slots=True)
class Stay:
    """Its action comes next, and nothing needs to be written down for that."""


@dataclass(frozen=True, slots=True)
class Follow:
    """SQL has decided about it: nothing is undone here, and Redis follows."""


Move = Rest | Park | Next | Stay | Follow

NEXT = Next()
STAY = Stay()


class Pipelines(Protocol):
    def current(self, name: str) -> PipelineDefinition: ...
    def version(self, name: str, version: str) -> PipelineDefinition: ...


class Decider:
    def __init__(
        self, settings: Settings, pipelines: Pipelines, registry: Registry, rng: random.Random
    ) -> None:
        self._settings = settings
        self._pipelines = pipelines
        self._registry = registry
        self._rng = rng

    def decide(self, run: Run) -> Move:
        """Change the state by what came of the run's action; say what to do with it."""
        outcome, run.outcome = run.outcome, None
        if run.wants_point:
            _bind(run, outcome)
        if type(outcome) is Output and run.action.kind == "run":
            return self._done(run, outcome)
        if not isinstance(outcome, Output):
            move = self._without_effect(run, outcome)
            if move is not None:
                return move
        run.crashed = False
        if run.action.kind == "undo":
            return self._undone(run, outcome)
        match outcome:
            case Sleep(seconds=seconds, switch=switch):
                run.change(slept(seconds, switch))
                return Rest(seconds, switch)
            case Call():
                return self._called(run, outcome)
            case Ended():
                return self._ended(run, outcome)
            case Broken(note=note):
                return self._broken(run, note)
            case _:
                raise AssertionError(f"nothing is known about {outcome!r}")

    def _ended(self, run: Run, ended: Ended) -> Move:
        if run.state.is_past_return:
            return Park(_past_return(run, f"says {ended.status}: {ended.note}"))
        rollback = ended.status is Status.FAILED
        output, left_out = self._definition(run, 0).replied(ended.output)
        note = "; ".join(each for each in (self._text_of(run, ended), left_out) if each)
        run.change(ending(ended.status, clean_note(note), output, rollback=rollback))
        return Next()

    def _text_of(self, run: Run, ended: Ended) -> str:
        """The note in the language of the transaction, if its pipeline has a text for the code."""
        if not ended.code:
            return ended.note
        wanted = str(run.metadata.get("lang", ""))
        # A child pipeline may have texts of its own; else those of its caller are used.
        for level in (-1, 0):
            messages = self._definition(run, level).messages
            text = message_of(messages, ended.code, ended.params, wanted)
            if text is not None:
                return text
        return ended.note

    def _definition(self, run: Run, level: int) -> PipelineDefinition:
        frame = run.state.stack[level]
        return self._pipelines.version(frame.pipeline, frame.version)

    def _done(self, run: Run, output: Output) -> Move:
        run.crashed = False
        undoable = self._type(run).rollback_function is not None
        if output.data is None:
            run.change(passed(undoable=undoable))
        else:
            run.done(output.data, output.text, undoable=undoable)
        return NEXT

    def _without_effect(self, run: Run, outcome: Outcome | None) -> Move | None:
        """Moves for what says nothing about the step itself."""
        match outcome:
            case AskFirst():
                return Stay()
            case NotStarted():
                run.crashed = False
                return Stay()
            case RecordRefused():
                return Follow()
            case Stopped():
                return self._stopped(run, outcome)
            case Unanswered(note=note):
                run.crashed = False
                return self._unanswered(run, note)
            case Doubt(note=note):
                run.crashed = False
                return Park(note)
            case Unavailable(is_tried=is_tried):
                if run.state.open and (is_tried or self._type(run).transactional):
                    # It may have had an effect, or a commit whose answer was lost: the next claim
                    # must find out, before a cancel or an expiry turns the transaction around.
                    run.crashed = True
                else:
                    run.crashed = False
                    close(run)
                return Rest(UNAVAILABLE_S)
            case RunAlone():
                close(run)
                return Next(alone=True)
        return None

    def _stopped(self, run: Run, stopped: Stopped) -> Move:
        """A cancel or an expiry came before its point of no return."""
        run.crashed = False
        if stopped.request is not None:
            run.stop_request = stopped.request
            self.stop(run, mid_way=stopped.mid_way)
            return NEXT
        rest = self.wait_for_handler()
        if stopped.mid_way:
            run.change(erred("its time was over before its point of no return", rest.seconds))
        else:
            close(run)
        return rest

    def stop(self, run: Run, *, mid_way: bool = False) -> None:
        """Turn a transaction around that was asked to stop: cancelled, or expired."""
        request = StopRequest.from_text(run.stop_request)
        partial = (mid_way or run.state.errors > 0) and self._can_undo_partly(run)
        run.change(
            ending(request.status, request.reason, None, rollback=True, undo_current=partial)
        )

    def follow_decision(self, run: Run) -> Move:
        """A person has decided what became of the step, so it is not run."""
        decision = run.state.decided
        assert decision is not None
        close(run)
        if decision.what == "done":
            run.outcome = Output(decision.output)
        else:
            # A person may go back where no step may.
            run.crashed = False
            failed = ending(Status.FAILED, decision.note, decision.output, rollback=True)
            run.change(failed)
            return NEXT
        return self.decide(run)

    def wait_for_handler(self) -> Rest:
        """One that has expired begins nothing new; the timeout handler turns it around.

        Nor does one of which SQL must say something first, and could not be asked.
        """
        return Rest(self._settings.timeout_retry_s)

    def sleep_on(self, run: Run, rest: Rest) -> Rest:
        """It was asked to stop, and that is not heeded; unless SQL could not be asked just now."""
        if not run.waits_for_sql:
            return rest
        return Rest(min(rest.seconds, self._settings.timeout_retry_s), rest.switch)

    def too_many_crashes(self, run: Run) -> Park | None:
        if run.state.crashes < self._settings.crashes_max:
            return None
        return Park(f"{run.action.where} lost its worker {run.state.crashes} times")

    def _undone(self, run: Run, outcome: Outcome | None) -> Move:
        if isinstance(outcome, Output):
            run.change(UNDONE)
            return Next()
        note = outcome.note if isinstance(outcome, Broken) else "it did not return"
        where = run.action.where
        return self._retry(run, note) or Park(f"{where} cannot be rolled back: {note}")

    def _unanswered(self, run: Run, note: str) -> Move:
        where = run.action.where
        return self._retry(run, note, still_open=True) or Park(f"the probe of {where}: {note}")

    def _broken(self, run: Run, note: str) -> Move:
        if run.is_overdue:
            rest = self.wait_for_handler()
            run.change(erred(note, rest.seconds))
            return rest
        again = self._retry(run, note)
        if again:
            return again
        if run.state.point is not None:
            return Park(_past_return(run, f"broke: {note}"))
        definition = self._definition(run, -1)
        where = run.action.where
        rollback = definition.on_error == "rollback"
        run.change(
            ending(
                Status.INTERNAL_ERROR,
                f"{where}: {note}",
                None,
                rollback=rollback,
                undo_current=rollback and self._can_undo_partly(run),
            )
        )
        return Next()

    def _retry(self, run: Run, note: str, *, still_open: bool = False) -> Rest | None:
        """Another try after a pause, if the policy allows one."""
        step = run.action.step
        policy = (step.retry if step else None) or self._type(run).retry
        tries = run.state.errors + 1
        if tries >= min(policy.max_attempts, RETRY_ATTEMPTS_MAX):
            return None
        delay_s = policy.delay_s(tries, self._rng)
        run.change(erred(note, delay_s, still_open=still_open))
        return Rest(delay_s)

    def _called(self, run: Run, call: Call) -> Move:
        if len(run.state.stack) >= NESTING_MAX:
            note = f"pipelines are nested deeper than {NESTING_MAX}"
            return self._broken_for_good(run, note)
        try:
            child = self._pipelines.current(call.pipeline)
        except PipelineError as error:
            return self._broken(run, str(error))
        if child.sealed and run.edge is None and self._is_chosen_by_function(run):
            note = (
                f"pipeline {child.name} is sealed and this transaction is not: set sealed: true in "
                f"{run.state.stack[0].pipeline}, whose step chose it"
            )
            return self._broken_for_good(run, note)
        data = None if call.data is None else dict(call.data)
        run.change(called(child.name, child.version, data))
        return Next(priority="in")

    def _is_chosen_by_function(self, run: Run) -> bool:
        """Whether a call on the way here was named by no parameter: accepting could not know of it.

        Else the child was sealed after the transaction was accepted, which goes on as it began.
        """
        return any(
            self._pipelines.version(frame.pipeline, frame.version).steps[frame.index].type
            != CHILD_PIPELINE
            for frame in run.state.stack
        )

    def _broken_for_good(self, run: Run, note: str) -> Move:
        if run.state.point is not None:
            return Park(_past_return(run, note))
        run.change(ending(Status.INTERNAL_ERROR, note, None, rollback=True))
        return Next()

    def _can_undo_partly(self, run: Run) -> bool:
        step_type = self._registry.find(run.action.step_type)
        return (
            run.action.kind == "run"
            and step_type is not None
            and step_type.rollback_partial
            and not step_type.transactional
        )

    def _type(self, run: Run) -> StepType:
        return self._registry.get(run.action.step_type)


def _bind(run: Run, outcome: Outcome | None) -> None:
    """The point of no return was recorded in the commit of the step's effects."""
    if isinstance(outcome, Output):
        run.change(bound("final", run.action.path))
    run.wants_point = False


def _past_return(run: Run, what: str) -> str:
    """For the person who decides: nothing is undone by itself behind a point of no return."""
    where = run.action.where
    point = run.state.point
    is_forward = point is not None and point.kind == "forward"
    why = "it was forwarded" if is_forward else "its point of no return is passed"
    return f"{where} {what}; {why}, so it is not rolled back"


def close(run: Run) -> None:
    """A step that was opened ahead of time and will not run here is not open any more."""
    if run.state.open and not run.crashed:
        run.change(CLOSE)
