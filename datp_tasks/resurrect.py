"""Bringing transactions back into Redis: those that left it, and those that it has lost.

What SQL knows of a transaction is its last archived copy and the journal since then, or its
accepted request and the whole journal. Folding gives the view; the restore script puts it back,
unless a newer version is there by now.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from sqlalchemy import Engine

from datp_tasks.archive.alerts import Alerts
from datp_tasks.archive.journal import Journal
from datp_tasks.archive.record import Record
from datp_tasks.archive.signals import CANCEL, Signal, Signals
from datp_tasks.archive.states import States, version_of
from datp_tasks.archive.words import Summary
from datp_tasks.bells.ringer import Ringer
from datp_tasks.clock import Clock
from datp_tasks.errors import PipelineError, StateLost
from datp_tasks.failpoints import reach
from datp_tasks.live.store import LiveStore
from datp_tasks.live.words import Bell, NewTransaction, Restored
from datp_tasks.model.journal import BrokenJournal, Entry, living_branch
from datp_tasks.model.payload import encode
from datp_tasks.model.pipeline import PipelineDefinition
from datp_tasks.model.plan import Position, next_action
from datp_tasks.model.state import Delta, State, delta_json, first_state_json
from datp_tasks.model.status import Status
from datp_tasks.model.view import View
from datp_tasks.pipelines.catalogue import Catalogue
from datp_tasks.settings import Settings

log = logging.getLogger("datp.resurrect")

#: Kind of the alert for a transaction that cannot be brought back.
LOST = "state-lost"


@dataclass(slots=True)
class Rebuilt:
    """What became of transactions that Redis had lost, or had in an older version."""

    restored: int = 0
    parked: int = 0


class Resurrector:
    def __init__(
        self,
        *,
        settings: Settings,
        clock: Clock,
        engine: Engine,
        live: LiveStore,
        record: Record,
        catalogue: Catalogue,
        ringer: Ringer,
    ) -> None:
        self._settings = settings
        self._live = live
        self._record = record
        self._catalogue = catalogue
        self._ringer = ringer
        self._states = States(engine, clock)
        self._journal = Journal(engine, clock)
        self._alerts = Alerts(engine, clock)
        self.signals = Signals(engine, clock)

    # What SQL knows.

    def views(self, summaries: Sequence[Summary]) -> dict[str, View | StateLost]:
        """Each transaction as far as SQL can tell, or why it cannot."""
        ids = [each.tx_id for each in summaries]
        copies = self._states.load(ids)
        # What is older than a copy is not needed, and a journal can be long.
        entries = self._journal.entries_since({tx: version_of(copies.get(tx)) for tx in ids})
        return {
            each.tx_id: self._view(each, copies.get(each.tx_id), entries.get(each.tx_id, []))
            for each in summaries
        }

    def versions(self, tx_ids: Sequence[str]) -> dict[str, int]:
        """The newest version of each that SQL has."""
        found = self._journal.last_versions(tx_ids)
        for tx, version in self._states.versions(tx_ids).items():
            found[tx] = max(version, found.get(tx, 0))
        return found

    def _view(
        self, summary: Summary, fields: dict[str, str] | None, entries: list[Entry]
    ) -> View | StateLost:
        try:
            archived = None if fields is None else view_of_copy(fields)
            if archived and (not entries or entries[-1].version <= archived.version):
                return archived
            since = _branch_since(archived, entries)
            if archived and since is not None:
                return archived.fold(since)
            if archived:
                entries = self._journal.entries([summary.tx_id]).get(summary.tx_id, [])
            return self.first_view(summary).fold(living_branch(entries))
        except (BrokenJournal, PipelineError, ValueError, KeyError, IndexError) as error:
            return StateLost(f"its archived state and journal do not lead to a state: {error}")

    def first_view(self, summary: Summary) -> View:
        """As it was when it was accepted."""
        definition = self._catalogue.version(summary.pipeline, summary.version)
        return View(State.from_json(_first(definition, summary)))

    # Those that left.

    def bring_back(self, tx_ids: Sequence[str]) -> None:
        """Back into memory as they are, for a while: somebody wants to read or change them."""
        known = self._live.exist_many(tx_ids)
        missing = [tx for tx, here in zip(tx_ids, known, strict=True) if not here]
        if not missing:
            return
        summaries = [each for each in self._record.summaries(missing) if not each.is_final]
        views = self.views(summaries)
        reach("resurrect.after_load")
        # One that runs or waits in a queue never leaves: if it is missing, Redis has lost it.
        back = [
            self._restored(each, view)
            for each in summaries
            if isinstance(view := views[each.tx_id], View) and view.status == Status.SLEEPING
        ]
        self._live.restore_many(back)
        # Whoever was paused here may have brought back one that woke, ended and left meanwhile.
        ended = self._record.finals([each.tx_id for each in back])
        self._live.follow_sql(list(ended.items()))

    def _restored(self, summary: Summary, view: View, fence: int = 0) -> Restored:
        return Restored(
            tx_id=summary.tx_id,
            version=view.version,
            # SQL would refuse the ending of whoever claims it under an older one.
            fence=max(view.fence, summary.fence, fence),
            status=view.status,
            fields=self._fields(summary, view),
            wake_ms="" if view.wake_ms is None else view.wake_ms,
            ttl_ms=self._settings.sleeping_ttl_s * 1_000 if view.status == Status.SLEEPING else 0,
        )

    # Those that were lost.

    def rebuild(
        self, summaries: Sequence[Summary], nodes: Mapping[str, str], *, has_begun: bool = False
    ) -> Rebuilt:
        """Put back what Redis does not have in the version of SQL. `nodes` hold older ones.

        Whoever still works on one of them is refused from now on, by SQL as well. `has_begun`:
        Redis knows that they were at work, so none can start from nothing.
        """
        views = self.views(summaries)
        fresh = [] if has_begun else [each for each in summaries if _is_fresh(views[each.tx_id])]
        bells = [bell for bell in self._live.create_many(list(map(self._new, fresh))) if bell]
        known = [each for each in summaries if has_begun or not _is_fresh(views[each.tx_id])]
        now_ms = self._live.server_now_ms()
        # The clock of a server that took over may be behind that of the one before it.
        fences = self._record.raise_fences(
            [(each.tx_id, max(now_ms, each.fence, _fence(views[each.tx_id]))) for each in known]
        )
        reach("rebuild.after_fence")
        result = Rebuilt(restored=len(bells))
        back = []
        for each in known:
            # A row that is locked belongs to a step that is about to commit: later.
            if each.tx_id in fences:
                restored = self._restored_or_parked(each, views[each.tx_id], fences[each.tx_id])
                back.append(replace(restored, node=nodes.get(each.tx_id, "")))
        answers = self._live.restore_many(back)
        reach("rebuild.after_restore")
        for restored, answer in zip(back, answers, strict=True):
            if isinstance(answer, Bell):
                result.restored += 1
                result.parked += restored.status == Status.IN_DOUBT
                bells += [answer] if restored.status == Status.QUEUED else []
        self._ringer.ring(bells)
        self.say_again(self.signals.of([each.tx_id for each in back]))
        return result

    def rebuild_finals(self, summaries: Sequence[Summary]) -> int:
        """Let the archive and the journal learn how these ended: Redis lost that on its way."""
        views = self.views(summaries)
        archived = self._states.statuses([each.tx_id for each in summaries])
        back = [
            self._ended(each, view)
            for each in summaries
            if isinstance(view := views[each.tx_id], View)
            and not view.status == each.status == archived.get(each.tx_id)
        ]
        answers = self._live.restore_many(back)
        return sum(isinstance(answer, Bell) for answer in answers)

    def _ended(self, summary: Summary, view: View) -> Restored:
        is_news = view.status != summary.status
        view.wake_ms = view.wake_switch = view.cancel = view.problem = None
        fields = self._fields(summary, view)
        fields.pop("stepType", None)
        return Restored(
            tx_id=summary.tx_id,
            version=view.version,
            fence=max(summary.fence, view.fence),
            status=str(summary.status),
            fields=fields,
            rebuilt=is_news,
        )

    def say_again(self, signals: Sequence[Signal]) -> None:
        """Switches and cancels that SQL has and Redis may have lost."""
        found = self._live.fields_many([each.tx_id for each in signals])
        for signal, fields in zip(signals, found, strict=True):
            if not fields or Status(fields["status"]).is_final:
                continue
            if signal.name == CANCEL:
                self._cancel_again(signal, fields)
            elif fields.get(f"switch:{signal.name}", ":").partition(":")[2] != signal.value:
                answer = self._live.set_switch(signal.tx_id, signal.name, signal.value)
                self._ringer.ring([answer if isinstance(answer, Bell) else None])

    def _cancel_again(self, signal: Signal, fields: Mapping[str, str]) -> None:
        """As begun, so that a worker ends it: nobody waits here to do that."""
        if "cancel" in fields or fields["status"] == Status.IN_DOUBT:
            return
        answer = self._live.cancel(signal.tx_id, signal.value, f"again-{signal.tx_id}")
        self._ringer.ring([answer if isinstance(answer, Bell) else None])

    def _restored_or_parked(self, summary: Summary, view: View | StateLost, fence: int) -> Restored:
        if isinstance(view, View) and view.version == 0:
            view = StateLost("neither the archive nor the journal knows of it.")
        if isinstance(view, StateLost):
            return self._parked(summary, view, fence)
        return self._fit_to_go_on(summary, view, fence)

    def _fit_to_go_on(self, summary: Summary, view: View, fence: int) -> Restored:
        """Asleep and in doubt stay what they are; everything else waits for a worker."""
        if view.status in (Status.SLEEPING, Status.IN_DOUBT):
            return replace(self._restored(summary, view, fence), rebuilt=True, ttl_ms=0)
        deltas: list[Delta] = []
        view.status = str(Status.QUEUED)
        position = self._position(view.state, deltas)
        fields = self._fields(summary, view, position)
        return Restored(
            tx_id=summary.tx_id,
            version=view.version,
            fence=fence,
            status=view.status,
            fields=fields,
            rebuilt=True,
            lines="\n".join(map(delta_json, deltas)),
        )

    def _parked(self, summary: Summary, why: StateLost, fence: int) -> Restored:
        """Nobody knows where it stood: not forgotten, and not run again either."""
        note = f"{why} A person must decide."
        about = {"event": "tx.parked", "tx": summary.tx_id, "fence": fence}
        log.error("%s cannot be brought back: %s", summary.tx_id, why, extra=about)
        self._record.mark(summary.tx_id, fence, Status.IN_DOUBT, note)
        self._alerts.raise_alert(LOST, summary.tx_id, note)
        view = self.first_view(summary)
        view.status, view.problem, view.begun = str(Status.IN_DOUBT), note, True
        version = max(self._journal.last_versions([summary.tx_id]).get(summary.tx_id, 0), 1)
        return Restored(
            tx_id=summary.tx_id,
            version=version,
            fence=fence,
            status=view.status,
            fields=self._fields(summary, view),
        )

    # The hash.

    def _fields(
        self, summary: Summary, view: View, position: Position | None = None
    ) -> dict[str, str]:
        position = position or self._position(_looked_ahead(view.state), [])
        return self._new(summary).fields() | dict(_pairs(position)) | view.to_fields()

    def _position(self, state: State, deltas: list[Delta]) -> Position:
        """Where it goes on; deltas that lead there are added to the list."""
        made, action = next_action(state, self._catalogue.version)
        deltas += made
        if action.kind != "end":
            return action.position()
        definition = self._catalogue.version(state.stack[0].pipeline, state.stack[0].version)
        index = min(state.stack[0].index, len(definition.steps) - 1)
        place = f"{definition.name}/{index}"
        return Position(definition.group_of(index), definition.steps[index].type, place)

    def _new(self, summary: Summary) -> NewTransaction:
        definition = self._catalogue.version(summary.pipeline, summary.version)
        return NewTransaction(
            tx_id=summary.tx_id,
            owner=summary.owner,
            external_id=summary.external_id,
            pipeline=summary.pipeline,
            group=definition.group_of(0),
            step_type=definition.steps[0].type,
            place=f"{summary.pipeline}/0",
            state_json=_first(definition, summary),
            metadata_json=None if summary.metadata is None else encode(summary.metadata),
            expires_at_ms=_ms(summary.expires_at),
            trace=summary.trace or "",
        )


def view_of_copy(fields: dict[str, str]) -> View:
    """From an archived copy, which carries the deltas since its JSON as one more field."""
    deltas = fields.get("deltas", "")
    return View.from_fields(fields, [deltas] if deltas else [])


def _looked_ahead(state: State) -> State:
    """A copy that may be moved on to its next action, which touches nothing deeper than this."""
    return replace(state, stack=[replace(frame) for frame in state.stack], undo=[*state.undo])


def _pairs(position: Position) -> list[tuple[str, str]]:
    flat = position.pairs()
    return list(zip(flat[::2], flat[1::2], strict=True))


def _fence(view: View | StateLost) -> int:
    return view.fence if isinstance(view, View) else 0


def _is_fresh(view: View | StateLost) -> bool:
    return isinstance(view, View) and view.version == 0


def _branch_since(archived: View | None, entries: Sequence[Entry]) -> list[Entry] | None:
    """What followed a copy; None if that is of a branch that was lost."""
    try:
        return living_branch(entries, since=archived.version) if archived else None
    except BrokenJournal:
        return None


def _first(definition: PipelineDefinition, summary: Summary) -> str:
    return first_state_json(definition.name, definition.version, encode(summary.input))


def _ms(moment: datetime | None) -> int | None:
    return None if moment is None else round(moment.timestamp() * 1_000)
