"""Tells the operator's own URL of every alert that is raised or cleared.

The table of alerts is the record; this reads what is new in it. It runs in a thread of its own, so
that no job waits for the receiver, and no more than one at a time in a process. A gate per alert
and event lets one process send it; one that could not be sent passes again after a while.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

from datp_tasks.live.job_notes import TurnGate
from datp_tasks.live.redis_errors import RedisError
from datp_tasks.live.store import LiveStore
from datp_tasks.record.alerts import Alert, Alerts
from datp_tasks.record.sql_errors import SQLAlchemyError

log = logging.getLogger("datp.webhooks")

#: What is older is not told any more: its time to be told is over, and so is its gate's.
TOLD_OF_S = 86_400.0
#: Longer than that, so that nothing is told twice.
TOLD_MS = 2 * 86_400_000
#: Longer than one attempt may take: until the next one, by any process.
TRY_AGAIN_MS = 600_000
#: The newest; a flood of alerts is told in turns.
LOOKED_AT_MAX = 500
#: In one turn; each may take as long as the receiver is waited for.
SENT_MAX = 20
STOP_S = 2.0

RAISED, CLEARED = "raised", "cleared"
#: Sends what happened to an alert (`raised` or `cleared`); True if it arrived.
Send = Callable[[Alert, str], bool]


class AlertTeller:
    def __init__(self, alerts: Alerts, live: LiveStore, send: Send) -> None:
        self._alerts = alerts
        self._live = live
        self._send = send
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Tell what is new, unless this process is at it."""
        with self._lock:
            if self._thread is not None and self._thread.is_alive():
                return
            self._thread = threading.Thread(target=self._tell, name="datp-alerts", daemon=True)
            self._thread.start()

    def close(self) -> None:
        if self._thread is not None:
            self._thread.join(STOP_S)

    def tell_once(self) -> int:
        """One turn; how many events arrived."""
        arrived = tried = 0
        for alert in self._alerts.recent(TOLD_OF_S, rows_max=LOOKED_AT_MAX):
            for event in (RAISED, CLEARED) if alert.is_cleared else (RAISED,):
                gate = TurnGate(self._live, f"alertTold:{alert.id}:{event}")
                if tried >= SENT_MAX or not gate.passes(TRY_AGAIN_MS):
                    continue
                tried += 1
                if self._send(alert, event):
                    gate.shut(TOLD_MS)
                    arrived += 1
        return arrived

    def _tell(self) -> None:
        try:
            self.tell_once()
        except (RedisError, SQLAlchemyError) as error:
            log.warning("the operator is told of alerts later: %s", error)
        except Exception:
            log.exception("the operator could not be told of alerts")
