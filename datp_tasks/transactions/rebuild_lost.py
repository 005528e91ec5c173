"""Rebuilding transactions that Redis has lost, or has in an older version than SQL.

Every worker that still has one of them is refused from then on: its fence is raised in SQL first.
What nothing tells about is parked in doubt, with an alert.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from datp_tasks.bells.ringer import Ringer
from datp_tasks.errors import StateLost
from datp_tasks.failpoints import reach
from datp_tasks.live.archive_feed import ArchiveFeed
from datp_tasks.live.live_types import Bell, Restored
from datp_tasks.live.store import LiveStore
from datp_tasks.model.state import Delta, delta_json
from datp_tasks.model.status import Status
from datp_tasks.model.view import View
from datp_tasks.record.alerts import Alerts
from datp_tasks.record.record_types import Summary
from datp_tasks.record.signals import Signal, Signals
from datp_tasks.record.transactions import Record
from datp_tasks.transactions.repeat_signals import repeat_signals
from datp_tasks.transactions.restore import Restorer

log = logging.getLogger("datp.rebuild")

#: Kind of the alert for a transaction that cannot be brought back.
LOST = "state-lost"


@dataclass(slots=True)
class Rebuilt:
    """What became of transactions that Redis had lost, or had in an older version."""

    restored: int = 0
    parked: int = 0


class Rebuilder:
    def __init__(
        self,
        *,
        restorer: Restorer,
        live: LiveStore,
        record: Record,
        signals: Signals,
        alerts: Alerts,
        ringer: Ringer,
    ) -> None:
        self.restorer = restorer
        self.views = restorer.views
        self.signals = signals
        self._live = live
        self._record = record
        self._alerts = alerts
        self._ringer = ringer

    def rebuild(
        self, summaries: Sequence[Summary], nodes: Mapping[str, str], *, has_begun: bool = False
    ) -> Rebuilt:
        """Bring back what Redis does not have in the version of SQL. `nodes` hold older ones.

        Every worker that still has one of them is refused from now on, by SQL as well.
        `has_begun`: Redis knows that they were at work, so none can start from nothing.
        """
        result, bells = self._rebuild(summaries, nodes, has_begun=has_begun)
        # What was said to them comes first: a worker may be quick.
        self.repeat_signals(self.signals.of([each.tx_id for each in summaries]))
        self._ringer.ring(bells)
        return result

    def place(self, tx_id: str, about_to_say: Signal | None = None) -> list[Bell]:
        """Into memory, be it asleep for long, lost, or never there; bells for what is queued.

        What was said to it before is said again, but not what the caller is about to say.
        """
        self.restorer.restore([tx_id])
        if self._live.exist_many([tx_id])[0]:
            return []
        summaries = [each for each in self._record.summaries([tx_id]) if not each.is_final]
        # It is known to wake some time, so it does not start from nothing.
        is_asleep = self._live.placed_many([tx_id])[0]
        _, bells = self._rebuild(summaries, {}, has_begun=is_asleep)
        self.repeat_signals([each for each in self.signals.of([tx_id]) if each != about_to_say])
        return bells

    def _rebuild(
        self, summaries: Sequence[Summary], nodes: Mapping[str, str], *, has_begun: bool = False
    ) -> tuple[Rebuilt, list[Bell]]:
        """What became of them, and the bells to ring for those that are queued."""
        views = self.views.load(summaries)
        now_ms = self._live.server_now_ms()
        # The clock of a server that took over may be behind that of the one before it.
        fences = self._record.raise_fences(
            [(each.tx_id, max(now_ms, each.fence, _fence(views[each.tx_id]))) for each in summaries]
        )
        reach("rebuild.after_fence")
        # A row that is locked belongs to a step that is about to commit: later.
        mine = [each for each in summaries if each.tx_id in fences]
        fresh = [each for each in mine if not has_begun and _is_fresh(each, views[each.tx_id])]
        bells = self._queue_anew(fresh, fences)
        result = Rebuilt(restored=len(bells))
        back = [
            replace(
                self._restored_or_parked(each, views[each.tx_id], fences[each.tx_id]),
                node=nodes.get(each.tx_id, ""),
            )
            for each in mine
            if has_begun or not _is_fresh(each, views[each.tx_id])
        ]
        answers = self._live.restore_many(back)
        reach("rebuild.after_restore")
        for restored, answer in zip(back, answers, strict=True):
            if isinstance(answer, Bell):
                result.restored += 1
                result.parked += restored.status == Status.IN_DOUBT
                bells += [answer] if restored.status == Status.QUEUED else []
        return result, bells

    def _queue_anew(self, fresh: Sequence[Summary], fences: Mapping[str, int]) -> list[Bell]:
        """Those of which SQL has only the request: they never came to Redis, or it lost them."""
        whole = self._whole_shards() if fresh else set()
        new = [
            replace(
                self.views.fields.new(each),
                fence=fences[each.tx_id],
                recreated=each.tx_id[1:3] not in whole,
            )
            for each in fresh
        ]
        return [bell for bell in self._live.create_many(new) if bell]

    def _whole_shards(self) -> set[str]:
        """Those that have all they ever had: the mark that SQL knows, on the server it knows.

        Asked after something was not found there: no loss can hide behind an older answer.
        """
        marks = self.views.journal.marks()
        seen = self.views.journal.seen_server(self._live.keys.prefix)
        outgoing = ArchiveFeed(self._live)
        here = outgoing.marks()
        if seen != outgoing.run_id():
            return set()
        return {shard for shard, mark in marks.items() if here.get(shard, 0) >= mark}

    def rebuild_finals(self, summaries: Sequence[Summary]) -> int:
        """Let the archive and the journal learn how these ended: Redis lost that on its way."""
        # What was erased has no state any more, by order, and its journal leads to none.
        summaries = [each for each in summaries if each.erased_at is None]
        views = self.views.load(summaries)
        archived = self.views.states.statuses([each.tx_id for each in summaries])
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
        fields = self.views.fields.fields(summary, view)
        fields.pop("stepType", None)
        return Restored(
            tx_id=summary.tx_id,
            version=view.version,
            fence=max(summary.fence, view.fence),
            status=str(summary.status),
            fields=fields,
            rebuilt=is_news,
        )

    def repeat_signals(self, signals: Sequence[Signal]) -> None:
        """Switches and cancels that SQL has and Redis may have lost."""
        repeat_signals(signals, live=self._live, record=self._record, ringer=self._ringer)

    def _restored_or_parked(self, summary: Summary, view: View | StateLost, fence: int) -> Restored:
        if isinstance(view, View) and view.version == 0:
            view = StateLost("neither the archive nor the journal knows of it.")
        if isinstance(view, StateLost):
            return self._parked(summary, view, fence)
        return self._fit_to_go_on(summary, view, fence)

    def _fit_to_go_on(self, summary: Summary, view: View, fence: int) -> Restored:
        """Asleep and in doubt stay what they are; everything else waits for a worker.

        SQL gets to know that something is in doubt before Redis and its journal do.
        """
        view.recreated = True
        if Status.IN_DOUBT in (summary.status, view.status):
            view.status, view.wake_ms, view.wake_switch = str(Status.IN_DOUBT), None, None
            view.problem = view.problem or summary.note or "it was in doubt when Redis was lost"
        if view.status in (Status.SLEEPING, Status.IN_DOUBT):
            return replace(self.restorer.restored(summary, view, fence), rebuilt=True, ttl_ms=0)
        deltas: list[Delta] = []
        view.status = str(Status.QUEUED)
        position = self.views.fields.position(view.state, deltas)
        fields = self.views.fields.fields(summary, view, position)
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
        """Nothing tells where it stood: it is not forgotten, and not run again either."""
        note = f"{why} A person must decide."
        about = {"event": "tx.parked", "tx": summary.tx_id, "fence": fence}
        log.error("%s cannot be brought back: %s", summary.tx_id, why, extra=about)
        self._record.mark(summary.tx_id, fence, Status.IN_DOUBT, note)
        self._alerts.raise_alert(LOST, summary.tx_id, note)
        view = self.views.first(summary)
        view.status, view.problem, view.begun = str(Status.IN_DOUBT), note, True
        version = max(self.views.journal.last_versions([summary.tx_id]).get(summary.tx_id, 0), 1)
        return Restored(
            tx_id=summary.tx_id,
            version=version,
            fence=fence,
            status=view.status,
            fields=self.views.fields.fields(summary, view),
        )


def _fence(view: View | StateLost) -> int:
    return view.fence if isinstance(view, View) else 0


def _is_fresh(summary: Summary, view: View | StateLost) -> bool:
    in_doubt = summary.status == Status.IN_DOUBT
    return isinstance(view, View) and view.version == 0 and not in_doubt
