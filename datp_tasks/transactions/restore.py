"""Bringing transactions back into Redis that left it: a caller reads or changes them.

`views` folds what SQL knows of a transaction; the restore script puts that back, unless a newer
version is there by now. Those that Redis has lost are rebuilt by `rebuild_lost.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from datp_tasks.failpoints import reach
from datp_tasks.live.live_types import Refused, Restored
from datp_tasks.live.store import LiveStore
from datp_tasks.model.status import FINAL, Status
from datp_tasks.model.view import View
from datp_tasks.record.record_types import Summary
from datp_tasks.record.transactions import Record
from datp_tasks.transactions.follow_record import follow_record
from datp_tasks.transactions.views import RecordedViews

#: A process that is paused at every reading does not go on for ever.
READINGS_MAX = 3


class Restorer:
    def __init__(self, live: LiveStore, record: Record, views: RecordedViews) -> None:
        self._live = live
        self._record = record
        #: What SQL knows of transactions.
        self.views = views

    def restore(self, tx_ids: Sequence[str]) -> None:
        """Back into memory as they are, for a while: a caller reads or changes them."""
        for _ in range(READINGS_MAX):
            tx_ids = self._bring_back(tx_ids)
            if not tx_ids:
                return

    def _bring_back(self, tx_ids: Sequence[str]) -> list[str]:
        """Those that were read so long before that they must be read again."""
        # What changes from here on stays in memory for longer than a sleeper's time to leave.
        until_ms = self._live.server_now_ms() + self._live.sleeping_ttl_ms
        known = self._live.exist_many(tx_ids)
        missing = [tx for tx, here in zip(tx_ids, known, strict=True) if not here]
        if not missing:
            return []
        over = (Status.IN_DOUBT, *FINAL)
        summaries = [each for each in self._record.summaries(missing) if each.status not in over]
        views = self.views.load(summaries)
        reach("resurrect.after_load")
        # Only what sleeps or has ended leaves: anything else that is missing, Redis has lost.
        back = [
            replace(self.restored(each, view), until_ms=until_ms)
            for each in summaries
            if isinstance(view := views[each.tx_id], View) and view.status == Status.SLEEPING
        ]
        answers = self._live.restore_many(back)
        # One that woke and ended may leave sooner: a process that was paused here brought it back.
        follow_record(self._record, self._live, [each.tx_id for each in back])
        return [e.tx_id for e in answers if isinstance(e, Refused) and e.word == "LATE"]

    def restored(self, summary: Summary, view: View, fence: int = 0) -> Restored:
        """What the restore script needs to put it back as it is."""
        return Restored(
            tx_id=summary.tx_id,
            version=view.version,
            # SQL would refuse the ending of a worker that claims it under an older one.
            fence=max(view.fence, summary.fence, fence),
            status=view.status,
            fields=self.views.fields.fields(summary, view),
            wake_ms="" if view.wake_ms is None else view.wake_ms,
            ttl_ms=self._live.sleeping_ttl_ms if view.status == Status.SLEEPING else 0,
        )
