"""States and deltas whose payloads are changed: sealed before they rest, opened after."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from datp_tasks.model.payload import Json
from datp_tasks.model.state import Delta, State

#: Parts of a delta that are payloads, or may quote them.
PAYLOADS = ("out", "data", "why", "log")


def with_payloads(delta: Delta, change: Callable[[Any], Any]) -> Delta:
    """A delta whose payloads are changed: sealed before it rests, opened before it is applied."""
    parts = {name: change(delta[name]) for name in PAYLOADS if delta.get(name) is not None}
    return {**delta, **parts} if parts else delta


def state_with_payloads(state: State, change: Callable[[Any], Any]) -> State:
    """The same for a state; a copy, but for what is no payload."""

    def maybe(value: Json | None) -> Json | None:
        return None if value is None else change(value)

    ending, decision = state.ending, state.decided
    return replace(
        state,
        data=change(state.data),
        undo=[replace(u, data=change(u.data), output=maybe(u.output)) for u in state.undo],
        ending=replace(ending, output=maybe(ending.output)) if ending else None,
        decided=replace(decision, output=maybe(decision.output)) if decision else None,
    )
