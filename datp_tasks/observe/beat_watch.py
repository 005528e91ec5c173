"""Beat that stopped: noticed by the workers, because nothing that beat runs could notice it."""

from __future__ import annotations

import logging

from datp_tasks.live.job_notes import Note, TurnGate
from datp_tasks.live.metrics import Metrics, take_counts
from datp_tasks.live.redis_errors import RedisError
from datp_tasks.live.store import LiveStore
from datp_tasks.record.alerts import Alerts
from datp_tasks.record.sql_errors import SQLAlchemyError

log = logging.getLogger("datp.watcher")

#: Kind of the alert; its subject is the maintenance group.
BEAT_SILENT = "beat-silent"
#: Workers that look at the same time raise once; the others need not ask SQL.
RAISE_AGAIN_MS = 10_000


class BeatWatch:
    def __init__(self, live: LiveStore, alerts: Alerts, *, silent_s: float, subject: str) -> None:
        self._live = live
        self._alerts = alerts
        self._silent_ms = int(silent_s * 1_000)
        self._subject = subject
        self._seen = Note(live, "beatSeen")
        self._gate = TurnGate(live, "tick:beat-silent")

    def seen(self) -> None:
        """A job of beat arrived here just now."""
        self._seen.write(self._live.server_now_ms())

    def look(self) -> bool:
        """Raise an alert if no job has arrived anywhere for too long; True if that is so.

        Called with every heartbeat of every worker. The watcher, which beat runs, clears it.
        """
        try:
            now_ms = self._live.server_now_ms()
            seen_ms = self._seen.read()
            if seen_ms is None:
                # No worker has looked yet, or Redis has forgotten: patience starts now.
                self._seen.write(now_ms, only_if_missing=True)
                return False
            silent_ms = now_ms - int(seen_ms)
            if silent_ms < self._silent_ms:
                return False
            if self._gate.passes(RAISE_AGAIN_MS):
                self._take_counts(now_ms)
                self._raise(silent_ms)
        except (RedisError, SQLAlchemyError) as error:
            log.debug("whether beat lives is not known: %s", error)
            return False
        return True

    def clear(self) -> bool:
        return self._alerts.clear_alert(BEAT_SILENT, self._subject)

    def _take_counts(self, now_ms: int) -> None:
        """The meter does not run either: what the scripts count would only grow."""
        metrics = Metrics(self._live.redis, self._live.keys)
        metrics.add(take_counts(self._live), {}, now_ms // 1_000)

    def _raise(self, silent_ms: int) -> None:
        summary = (
            f"no job of beat has run for {silent_ms / 1_000:.0f} s: beat is not running, or no "
            f"worker takes the messages in the queue {self._subject}"
        )
        if self._alerts.raise_alert(BEAT_SILENT, self._subject, summary):
            log.error(summary, extra={"event": "beat.silent", "group": self._subject})
