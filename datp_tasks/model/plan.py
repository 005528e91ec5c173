"""What a transaction does next: read off its state and its pipelines, nothing else."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal

from datp_tasks.model.notes import clean_note
from datp_tasks.model.pipeline import PipelineDefinition, StepDefinition
from datp_tasks.model.state import Delta, State, Undo, apply, ending, returned
from datp_tasks.model.status import Status

VersionOf = Callable[[str, str], PipelineDefinition]

#: What a pipeline does at a step never changes: its version is the hash of its content.
#: By pipeline, version and path, where the path of one that no other pipeline called is a number.
_ACTIONS: dict[tuple[str, str, str | int], Action] = {}
ACTIONS_MAX = 10_000


@dataclass(frozen=True, slots=True)
class Position:
    """Where a queued or sleeping transaction will go on."""

    group: str
    step_type: str
    place: str
    priority: str = "out"

    def pairs(self) -> tuple[str, ...]:
        return (
            *("group", self.group, "stepType", self.step_type),
            *("place", self.place, "priority", self.priority),
        )


def place_words(place: str) -> str:
    """Where a transaction is, for people: `payout/1` is step 2 of payout."""
    pipeline, _, index = place.rpartition("/")
    is_place = bool(pipeline) and index.isascii() and index.isdecimal()
    return f"step {int(index) + 1} of {pipeline}" if is_place else place


def step_words(place: str, step_type: str) -> str:
    """The same with the type: step 2 of payout (bank/pay)."""
    return f"{place_words(place)} ({step_type})"


def path_words(path: str) -> str:
    """For people, who count steps from 1: `1.0` is step 1 of the child of step 2."""
    inner_first = path.split(".")[::-1]
    if not all(each.isdecimal() for each in inner_first):
        return f"step {path}"
    return " of the child of ".join(f"step {int(each) + 1}" for each in inner_first)


@dataclass(frozen=True, slots=True)
class Action:
    """Run a step, undo a step, or end."""

    kind: Literal["run", "undo", "end"]
    group: str
    step: StepDefinition | None
    place: str
    path: str
    undo: Undo | None = None
    #: Whether it gets a message of its own; None: as the settings say.
    own_message: bool | None = None
    #: Asked for several times in each round, so it is not looked up each time.
    step_type: str = field(init=False, default="")
    #: Running it means a point of no return, or that it is forwarded.
    binds: bool = field(init=False, default=False)

    def __post_init__(self) -> None:
        step = self.step
        if step:
            object.__setattr__(self, "step_type", step.type)
            is_bound = self.kind == "run" and (step.final_from or step.forwards)
            object.__setattr__(self, "binds", bool(is_bound))

    @property
    def where(self) -> str:
        return step_words(self.place, self.step_type)

    def position(self, priority: str = "out") -> Position:
        return Position(self.group, self.step_type, self.place, priority)

    def key(self, tx_id: str) -> str:
        """The same at every try: outside systems and the record know the action by it."""
        return f"{tx_id}:{self.path}:undo" if self.kind == "undo" else f"{tx_id}:{self.path}"

    def attempt_key(self, tx_id: str, state: State) -> str:
        """Names one try: a new one begins after an error and after a sleep."""
        return f"{self.key(tx_id)}#{state.errors}.{state.sleeps}"


_END = Action("end", "", None, "", "")


def next_action(state: State, version_of: VersionOf) -> tuple[list[Delta], Action]:
    """The next action, and the deltas (already applied) that lead there."""
    deltas: list[Delta] = []
    while True:
        if state.ending is not None:
            return deltas, _unwind(state, version_of)
        frame = state.stack[-1]
        path = frame.index if len(state.stack) == 1 else state.path
        place = (frame.pipeline, frame.version, path)
        known = _ACTIONS.get(place)
        if known is not None:
            return deltas, known
        definition = version_of(frame.pipeline, frame.version)
        if frame.index < len(definition.steps):
            if len(_ACTIONS) >= ACTIONS_MAX:
                _ACTIONS.clear()
            action = _ACTIONS[place] = _run(definition, frame.index, str(path))
            return deltas, action
        delta = returned() if len(state.stack) > 1 else _success(definition, state)
        apply(state, delta)
        deltas.append(delta)


def _success(definition: PipelineDefinition, state: State) -> Delta:
    output, note = definition.replied(state.data)
    return ending(Status.SUCCESS, clean_note(note) if note else "", output)


def _run(definition: PipelineDefinition, index: int, path: str) -> Action:
    step = definition.steps[index]
    place = f"{definition.name}/{index}"
    own = definition.own_message(index)
    return Action("run", definition.group_of(index), step, place, path, own_message=own)


def _unwind(state: State, version_of: VersionOf) -> Action:
    assert state.ending is not None
    if state.ending.rollback and state.undo:
        last = state.undo[-1]
        definition = version_of(last.pipeline, last.version)
        step = definition.steps[last.index]
        place = f"{definition.name}/{last.index}"
        own, group = definition.own_message(last.index), definition.group_of(last.index)
        return Action("undo", group, step, place, last.path, last, own_message=own)
    return _END
