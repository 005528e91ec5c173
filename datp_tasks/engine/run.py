"""One transaction inside a hop."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from datp_tasks.engine.outcomes import Outcome
from datp_tasks.engine.seal_edge import SealEdge, edge_of
from datp_tasks.engine.state_cache import Kept
from datp_tasks.live.live_types import Claimed, Held, switches_of
from datp_tasks.model.log_lines import CUT, TRANSACTION_CHARS_MAX, chars_of, logged
from datp_tasks.model.notes import error_note, error_text, new_error_id
from datp_tasks.model.payload import SEALED, Json, decode, encode
from datp_tasks.model.plan import Action, VersionOf, next_action
from datp_tasks.model.state import (
    BEGIN,
    CLOSE,
    Delta,
    State,
    apply,
    done,
    restated,
    succeeded,
    told,
)
from datp_tasks.model.state_payloads import state_with_payloads
from datp_tasks.model.status import Status
from datp_tasks.record.record_types import Stop
from datp_tasks.record.vault import Vault


@dataclass(slots=True, eq=False)
class Run:
    """Memory of a claimed transaction: the truth while the hop lasts."""

    tx_id: str
    fence: int
    state: State
    fields: Mapping[str, str]
    #: The worker before this one was lost in the middle of the step.
    crashed: bool
    switches: Mapping[str, str]
    switch_seq: int
    #: As Redis has it (model/stop_request.py); empty if it was not asked to stop.
    stop_request: str
    #: Node group it runs in now, as Redis has it.
    group: str
    #: Last progress report, JSON.
    progress: str | None
    #: When it must be over, by the clock of the server.
    expires_at_ms: int | None = None
    #: When it was claimed, by the clock of this process.
    claimed_s: float = field(default_factory=time.monotonic)
    #: While a transactional step holds the row of the summary: reports to be recorded after it.
    held_reports: list[str] | None = None
    #: Deltas that are in the state but not in Redis yet.
    pending: list[Delta] = field(default_factory=list)
    #: Redis has it in the middle of a step that is not safe to run again.
    mid_way: bool = False
    #: SQL refuses everyone with an older fence, so that undoing is this worker's alone.
    owns_undo: bool = False
    #: A step that is done in SQL is the point of no return: recorded in the same commit.
    wants_point: bool = False
    #: Its step asked for a point of no return outside of its effects: SQL may have one that the
    #: state does not.
    asked_for_point: bool = False
    #: What the row said when a transactional step got hold of it, or when it was refused.
    stop_found: Stop | None = None
    #: SQL refuses to let it stop, or cannot be asked just now.
    ignores_stop: bool = False
    #: SQL must say whether it may stop, or is bound, and could not be asked.
    waits_for_sql: bool = False
    #: Data of the state, and its JSON.
    _data_json: tuple[Json | None, str] = (None, "")
    #: For one whose payloads rest sealed.
    edge: SealEdge | None = None
    #: What the last unexpected exception said: for operators, so in the journal and in no note.
    error_text: str = ""
    #: What its steps logged since the last script, and the characters that makes.
    lines: list[list[Any]] = field(default_factory=list)
    _lines_chars: int = 0
    action: Action = field(init=False)
    outcome: Outcome | None = None

    @classmethod
    def from_claim(cls, claimed: Claimed, vault: Vault, kept: Kept | None = None) -> Run:
        """Fold what Redis has: the JSON, or the state kept since it was written, and deltas."""
        fields = claimed.fields
        if kept is None:
            state = State.from_json(fields["state"])
            edge = edge_of(claimed.tx_id, state, vault) if SEALED in state.data else None
            if edge is not None:
                state = state_with_payloads(state, edge.open)
        else:
            state, edge = kept.state, kept.edge
        for lines in claimed.deltas:
            for line in lines.split("\n"):
                delta = decode(line)
                apply(state, delta if edge is None else edge.opened_delta(delta))
        crashed = state.open
        state.open = crashed or claimed.opened
        return cls(
            tx_id=claimed.tx_id,
            fence=claimed.fence,
            state=state,
            fields=fields,
            crashed=crashed,
            switches=switches_of(fields),
            switch_seq=int(fields.get("switchSeq", 0)),
            stop_request=fields.get("cancel", ""),
            group=fields.get("group", ""),
            progress=fields.get("progress"),
            expires_at_ms=int(fields["expiresAt"]) if "expiresAt" in fields else None,
            edge=edge,
        )

    def change(self, delta: Delta) -> None:
        if self.error_text and delta["k"] in ("error", "end"):
            delta, self.error_text = told(delta, self.error_text), ""
        apply(self.state, delta)
        self.pending.append(delta)

    def note_error(self, kind: str, text: str) -> str:
        """Keep for operators what an unexpected error said; the note that its client sees."""
        error_id = new_error_id()
        self.error_text = error_text(f"error {error_id}: {kind}: {text}")
        return error_note(kind, error_id)

    def keep_line(self, level: str, attempt: int, text: str, fields: Json | None) -> None:
        """Keep a line with what the step does next; beyond the limit, a word that says so."""
        chars = self.state.said + self._lines_chars
        if chars > TRANSACTION_CHARS_MAX:
            return
        # By the clock of the server, as far as the claim told it.
        now_ms = self.fence + int((time.monotonic() - self.claimed_s) * 1_000)
        line = [now_ms, level, self.action.path, self.action.step_type, attempt, text]
        if fields:
            line.append(fields)
        if chars + chars_of(line) > TRANSACTION_CHARS_MAX:
            line[1:] = ["warning", *line[2:5], CUT]
            self._lines_chars += TRANSACTION_CHARS_MAX
        self._lines_chars += chars_of(line)
        self.lines.append(line)

    def _with_lines(self, pending: list[Delta]) -> list[Delta]:
        """The lines travel with the last delta, or with one that changes nothing."""
        lines, self.lines = self.lines, []
        said, self._lines_chars = self.state.said + self._lines_chars, 0
        *before, last = pending or [BEGIN if self.state.open else CLOSE]
        self.state.said = said
        return [*before, logged(last, lines, said)]

    def restate_error(self) -> None:
        """Nothing changes any more, but the journal must tell what the last error said."""
        if self.error_text:
            delta, self.error_text = restated(self.state.open, self.error_text), ""
            self.change(delta)

    def plan(self, version_of: VersionOf) -> Action:
        deltas, self.action = next_action(self.state, version_of)
        if deltas:
            last = deltas[-1]
            if last.get("status") == Status.SUCCESS and last["out"] is self.state.data:
                deltas[-1] = succeeded(last, self.data_json)
            self.pending.extend(deltas)
        return self.action

    @property
    def data_json(self) -> str:
        """The data of the state as JSON, as it rests; made once for all who need it."""
        data, text = self._data_json
        if data is not self.state.data:
            data, text = self._data_json = (self.state.data, self.rest_json(self.state.data))
        return text

    def rest_json(self, value: Json) -> str:
        """A payload as JSON, as it rests."""
        return encode(value if self.edge is None else self.edge.seal(value))

    def at_rest(self, value: Json | None) -> Json | None:
        """A payload as it rests."""
        return value if self.edge is None or value is None else self.edge.seal(value)

    def opened(self, value: Json | None) -> Json | None:
        """A payload that rested, as a step sees it."""
        return value if self.edge is None or value is None else self.edge.open(value)

    def done(self, output: Json, text: str | None, *, undoable: bool) -> None:
        """The step has this output, which is the data from here on."""
        if self.edge is not None:
            # That text is plain.
            text = None
        self.change(done(output, undoable=undoable, text=text))
        if text is not None:
            self._data_json = (self.state.data, text)

    def state_json(self) -> str:
        if self.edge is not None:
            return self.edge.state_json(self.state)
        return self.state.to_json(self.data_json)

    def take_pending(self) -> Held:
        """What the next script must write; from here on it counts as written."""
        return Held(self.tx_id, self.fence, tuple(self.take_deltas()))

    def take_deltas(self) -> list[Delta]:
        """The same without its id and fence."""
        pending, self.pending = self.pending, []
        if self.lines:
            pending = self._with_lines(pending)
        if self.edge is not None:
            pending = self.edge.sealed_deltas(pending)
        return pending

    def refresh(self, fields: Mapping[str, str]) -> None:
        """Switches as Redis has them now."""
        self.switches = switches_of(fields)
        self.switch_seq = int(fields.get("switchSeq", 0))

    def about(self, event: str) -> dict[str, Any]:
        """For lines in the log: which transaction, under which claim (observe/logs.py)."""
        return {"event": event, "tx": self.tx_id, "fence": self.fence}

    @property
    def expiry_ms(self) -> int | None:
        """When it expires, if it still can."""
        return self.expires_at_ms if self.state.point is None else None

    @property
    def deadline(self) -> datetime | None:
        if self.expiry_ms is None:
            return None
        return datetime.fromtimestamp(self.expiry_ms / 1_000, UTC)

    @property
    def left_s(self) -> float | None:
        """Seconds until it expires, or None. The fence tells when the server let it be claimed."""
        if self.expires_at_ms is None or self.state.point is not None:
            return None
        return (self.expires_at_ms - self.fence) / 1_000 - (time.monotonic() - self.claimed_s)

    @property
    def is_overdue(self) -> bool:
        """It has expired: nothing new is begun, and the timeout handler decides."""
        if self.expires_at_ms is None:
            return False
        left_s = self.left_s
        return left_s is not None and left_s <= 0

    @property
    def metadata(self) -> dict[str, Any]:
        text = self.fields.get("metadata")
        return json.loads(text) if text else {}

    @property
    def attempt_key(self) -> str:
        return self.action.attempt_key(self.tx_id, self.state)

    @property
    def idempotency_key(self) -> str:
        return self.action.key(self.tx_id)
