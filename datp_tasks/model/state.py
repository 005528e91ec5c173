"""The transaction as the engine sees it, and how deltas change it.

The state is the last full JSON plus the deltas after it. A delta says what happened, never what
the result is, so that a journal of deltas can be read by people and folded again by `apply`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from datp_tasks.model.payload import Json, decode, encode
from datp_tasks.model.status import Status

Delta = dict[str, Any]


@dataclass(slots=True)
class PipelineFrame:
    """A pipeline that runs: which one, and how far it has come."""

    pipeline: str
    version: str
    index: int = 0


@dataclass(slots=True)
class Undo:
    """A step that was done and can be rolled back."""

    pipeline: str
    version: str
    index: int
    path: str
    data: Json
    #: None: it is not known whether the step took effect.
    output: Json | None


@dataclass(slots=True)
class Ending:
    """How the transaction will end once everything that must be rolled back is."""

    status: str
    note: str
    output: Json | None
    rollback: bool


@dataclass(slots=True)
class Decision:
    """A person says what became of a step: done with this output, or failed, and why."""

    what: str
    note: str
    output: Json | None = None


PointKind = Literal["final", "forward"]


@dataclass(frozen=True, slots=True)
class Point:
    """SQL has recorded that the transaction cannot expire or be cancelled, at this step."""

    #: final: from here on, for good. forward: while it is at this step.
    kind: PointKind
    path: str

    def is_at(self, path: str) -> bool:
        """Whether a step, or one of a child pipeline that it called, is the one that made it."""
        return path == self.path or path.startswith(f"{self.path}.")


@dataclass(slots=True)
class State:
    stack: list[PipelineFrame]
    data: Json
    #: The current step was opened and not closed: after a crash it is not known how far it got.
    open: bool = False
    #: Failed tries of the current step.
    errors: int = 0
    #: Workers lost while they ran the current step.
    crashes: int = 0
    #: How often the current step slept.
    sleeps: int = 0
    undo: list[Undo] = field(default_factory=list)
    ending: Ending | None = None
    #: What a person decided about the current step, which was in doubt.
    decided: Decision | None = None
    point: Point | None = None
    #: Characters of log lines that are kept of it (model/log_lines.py).
    said: int = 0

    @property
    def frame(self) -> PipelineFrame:
        return self.stack[-1]

    @property
    def path(self) -> str:
        """Names the current step in its transaction: the index in each pipeline of the stack."""
        if len(self.stack) == 1:
            return str(self.stack[0].index)
        return ".".join(str(frame.index) for frame in self.stack)

    @property
    def is_past_return(self) -> bool:
        """A step after the point of no return: what was done before is not undone for it."""
        point = self.point
        return point is not None and point.kind == "final" and not point.is_at(self.path)

    @property
    def attempt(self) -> int:
        return self.errors + self.crashes + 1

    def to_json(self, data_json: str | None = None) -> str:
        """Compact: what has its default value is left out. `data_json`: that of the data."""
        packed: dict[str, Any] = {}
        if self.open or self.errors or self.crashes or self.sleeps or self.said:
            for name in ("open", "errors", "crashes", "sleeps", "said"):
                value = getattr(self, name)
                if value:
                    packed[name] = value
        if self.undo:
            packed["undo"] = [
                [u.pipeline, u.version, u.index, u.path, u.data, u.output] for u in self.undo
            ]
        if self.point:
            packed["point"] = [self.point.kind, self.point.path]
        if d := self.decided:
            packed["decided"] = [d.what, d.note, d.output]
        frames = ",".join([f'["{f.pipeline}","{f.version}",{f.index}]' for f in self.stack])
        data = encode(self.data) if data_json is None else data_json
        rest = "," + encode(packed)[1:-1] if packed else ""
        if self.ending:
            e = self.ending
            output = data if e.output is self.data else encode(e.output)
            rollback = "true" if e.rollback else "false"
            note = encode(e.note) if e.note else '""'
            rest += f',"ending":["{e.status}",{note},{output},{rollback}]'
        return f'{{"stack":[{frames}],"data":{data}{rest}}}'

    @classmethod
    def from_json(cls, text: str) -> State:
        packed = decode(text)
        stack = [PipelineFrame(*frame) for frame in packed["stack"]]
        if len(packed) == 2:
            # Most have nothing else.
            return cls(stack, packed["data"])
        ending, decided, point = map(packed.get, ("ending", "decided", "point"))
        return cls(
            stack=stack,
            data=packed["data"],
            open=packed.get("open", False),
            errors=packed.get("errors", 0),
            crashes=packed.get("crashes", 0),
            sleeps=packed.get("sleeps", 0),
            undo=[Undo(*record) for record in packed.get("undo", ())],
            ending=Ending(*ending) if ending else None,
            decided=Decision(*decided) if decided else None,
            point=Point(*point) if point else None,
            said=packed.get("said", 0),
        )


def first_state_json(pipeline: str, version: str, input_json: str) -> str:
    """The state before the first step, made without parsing the input."""
    return f'{{"stack":[["{pipeline}","{version}",0]],"data":{input_json}}}'


# What can happen. Each function makes the delta; `apply` below says what it changes.

BEGIN: Delta = {"k": "begin"}
CLOSE: Delta = {"k": "close"}
CRASH: Delta = {"k": "crash"}
UNDONE: Delta = {"k": "undone"}
PASSED: Delta = {"k": "done"}
PASSED_UNDOABLE: Delta = {"k": "done", "undo": 1}

#: Most deltas of most hops are one of these, so their JSON is made once.
_READY_JSON = {
    id(each): encode(each) for each in (BEGIN, CLOSE, CRASH, UNDONE, PASSED, PASSED_UNDOABLE)
}
#: What most of them write between two steps.
_PASSED_ON = f"{encode(PASSED)}\n{encode(BEGIN)}"


class Written(dict[str, Any]):
    """A delta whose JSON is known already, because that of its largest part is."""

    __slots__ = ("text",)
    text: str


def _written(delta: Delta, text: str) -> Written:
    # Without an `__init__` of its own, which would take longer than the copy.
    written = Written(delta)
    written.text = text
    return written


def delta_json(delta: Delta) -> str:
    if type(delta) is Written:
        return delta.text
    return _READY_JSON.get(id(delta)) or encode(delta)


def delta_lines(deltas: Sequence[Delta]) -> str:
    """Deltas as the journal and `deltaL` have them: JSON, one a line."""
    if len(deltas) == 2 and deltas[0] is PASSED and deltas[1] is BEGIN:
        return _PASSED_ON
    return "\n".join(map(delta_json, deltas))


def done(output: Json, *, undoable: bool, text: str | None = None) -> Delta:
    """`text`: the output as JSON, where that is known."""
    delta: Delta = {"k": "done", "out": output}
    if undoable:
        delta["undo"] = 1
    if text is None:
        return delta
    undo = ',"undo":1' if undoable else ""
    return _written(delta, f'{{"k":"done","out":{text}{undo}}}')


def succeeded(delta: Delta, text: str) -> Delta:
    """The end of a transaction, without a note, whose output is known as JSON."""
    head = f'{{"k":"end","status":"{Status.SUCCESS}","note":""'
    return _written(delta, f'{head},"out":{text},"rollback":false}}')


def passed(*, undoable: bool) -> Delta:
    """The step was done and its input goes on unchanged."""
    return PASSED_UNDOABLE if undoable else PASSED


def called(pipeline: str, version: str, data: Json | None) -> Delta:
    return {"k": "call", "p": pipeline, "v": version, "data": data}


def returned() -> Delta:
    return {"k": "return"}


def slept(seconds: float, switch: str | None) -> Delta:
    return {"k": "sleep", "s": seconds, "switch": switch}


def erred(note: str, retry_in_s: float, *, still_open: bool = False) -> Delta:
    """`still_open`: what an earlier try did is not known yet, and must be found out first."""
    delta = {"k": "error", "note": note, "s": retry_in_s}
    return {**delta, "open": 1} if still_open else delta


def ending(
    status: Status,
    note: str,
    output: Json | None,
    *,
    rollback: bool = False,
    undo_current: bool = False,
) -> Delta:
    """`undo_current`: the step that ran last may have taken effect, so undo it as well."""
    delta = {"k": "end", "status": status, "note": note, "out": output, "rollback": rollback}
    return {**delta, "partial": 1} if undo_current else delta


def told(delta: Delta, why: str) -> Delta:
    """With what an exception said, for those who read the journal; it changes no state."""
    return {**delta, "why": why}


def restated(is_open: bool, why: str) -> Delta:
    """Nothing has changed, but an exception said this."""
    return told(BEGIN if is_open else CLOSE, why)


def decided(what: str, note: str, output: Json | None = None) -> Delta:
    """`what`: done or failed. The worker that claims it next acts on it."""
    return {"k": "decide", "what": what, "note": note, "out": output}


def bound(kind: PointKind | None, path: str) -> Delta:
    """SQL has recorded a point of no return, or that it is forwarded; None: not any more."""
    return {"k": "point", "kind": kind, "path": path}


def apply(state: State, delta: Delta) -> None:
    """Change the state by one delta."""
    _APPLY[delta["k"]](state, delta)
    if "said" in delta:
        state.said = delta["said"]


def _begin(state: State, _: Delta) -> None:
    state.open = True


def _close(state: State, _: Delta) -> None:
    state.open = False


def _crash(state: State, _: Delta) -> None:
    # The step stays open: the worker that claims next must decide what became of it.
    state.crashes += 1


def _done(state: State, delta: Delta) -> None:
    output = delta.get("out", state.data)
    if delta.get("undo"):
        frame = state.frame
        state.undo.append(
            Undo(frame.pipeline, frame.version, frame.index, state.path, state.data, output)
        )
    state.data = output
    _advance(state)


def _call(state: State, delta: Delta) -> None:
    if delta["data"] is not None:
        state.data = delta["data"]
    state.stack.append(PipelineFrame(delta["p"], delta["v"]))
    _fresh_step(state)


def _return(state: State, _: Delta) -> None:
    state.stack.pop()
    _advance(state)


def _sleep(state: State, _: Delta) -> None:
    state.sleeps += 1
    state.open = False


def _error(state: State, delta: Delta) -> None:
    state.errors += 1
    state.open = bool(delta.get("open"))


def _end(state: State, delta: Delta) -> None:
    if delta.get("partial"):
        frame = state.frame
        state.undo.append(
            Undo(frame.pipeline, frame.version, frame.index, state.path, state.data, None)
        )
    state.ending = Ending(delta["status"], delta["note"], delta["out"], delta["rollback"])
    _fresh_step(state)


def _decide(state: State, delta: Delta) -> None:
    state.decided = Decision(delta["what"], delta["note"], delta["out"])
    state.open = False


def _undone(state: State, _: Delta) -> None:
    state.undo.pop()
    _fresh_step(state)


def _point(state: State, delta: Delta) -> None:
    state.point = Point(delta["kind"], delta["path"]) if delta["kind"] else None


def _advance(state: State) -> None:
    state.stack[-1].index += 1
    _fresh_step(state)


def _fresh_step(state: State) -> None:
    state.open = False
    state.decided = None
    state.errors = state.crashes = state.sleeps = 0


_APPLY = {
    "begin": _begin,
    "close": _close,
    "crash": _crash,
    "done": _done,
    "call": _call,
    "return": _return,
    "sleep": _sleep,
    "error": _error,
    "end": _end,
    "undone": _undone,
    "decide": _decide,
    "point": _point,
}
