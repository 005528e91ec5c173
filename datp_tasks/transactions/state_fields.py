"""The live hash of a transaction, made from what SQL knows of it."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime

from datp_tasks.live.live_types import NewTransaction
from datp_tasks.model.payload import encode
from datp_tasks.model.plan import Position, next_action
from datp_tasks.model.state import Delta, State, first_state_json
from datp_tasks.model.view import View
from datp_tasks.pipelines.catalogue import Catalogue
from datp_tasks.record.record_types import Summary


class StateFields:
    def __init__(self, catalogue: Catalogue) -> None:
        self._catalogue = catalogue

    def first_json(self, summary: Summary) -> str:
        """The state as it was when the transaction was accepted."""
        definition = self._catalogue.version(summary.pipeline, summary.version)
        return first_state_json(definition.name, definition.version, encode(summary.input))

    def new(self, summary: Summary) -> NewTransaction:
        """For one that starts from nothing."""
        definition = self._catalogue.version(summary.pipeline, summary.version)
        return NewTransaction(
            tx_id=summary.tx_id,
            owner=summary.owner,
            external_id=summary.external_id,
            pipeline=summary.pipeline,
            group=definition.group_of(0),
            step_type=definition.steps[0].type,
            place=f"{summary.pipeline}/0",
            state_json=self.first_json(summary),
            metadata_json=None if summary.metadata is None else encode(summary.metadata),
            expires_at_ms=_ms(summary.expires_at),
            trace=summary.trace or "",
        )

    def fields(
        self, summary: Summary, view: View, position: Position | None = None
    ) -> dict[str, str]:
        """For one that goes on where its view says, or at the position that follows from it."""
        position = position or self.position(_looked_ahead(view.state), [])
        return self.new(summary).fields() | dict(_pairs(position)) | view.to_fields()

    def position(self, state: State, deltas: list[Delta]) -> Position:
        """Where it goes on; deltas that lead there are added to the list."""
        made, action = next_action(state, self._catalogue.version)
        deltas += made
        if action.kind != "end":
            return action.position()
        definition = self._catalogue.version(state.stack[0].pipeline, state.stack[0].version)
        index = min(state.stack[0].index, len(definition.steps) - 1)
        place = f"{definition.name}/{index}"
        return Position(definition.group_of(index), definition.steps[index].type, place)


def _looked_ahead(state: State) -> State:
    """A copy that may be moved on to its next action, which touches nothing deeper than this."""
    return replace(state, stack=[replace(frame) for frame in state.stack], undo=[*state.undo])


def _pairs(position: Position) -> list[tuple[str, str]]:
    flat = position.pairs()
    return list(zip(flat[::2], flat[1::2], strict=True))


def _ms(moment: datetime | None) -> int | None:
    return None if moment is None else round(moment.timestamp() * 1_000)
