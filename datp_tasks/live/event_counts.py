"""What a process counts by itself, for the meter: events that no script has to know of.

They are added up in memory and sent now and then, so counting costs no call. A process that dies
takes those of the last second along: metrics are no record.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import Counter

from datp_tasks.live.metrics import RESOLUTIONS, Label
from datp_tasks.live.redis_errors import RedisError
from datp_tasks.live.store import LiveStore

log = logging.getLogger("datp.metrics")

#: Queued again: handed over, woken, switched, stopped, resolved, or taken from a lost worker.
REQUEUED = "requeued"
#: A pipeline began, under its own name: of a transaction, or called by another pipeline.
PIPELINE = "pipeline"
#: All that a worker or a client counts in a second goes together.
SEND_EVERY_S = 1.0


class EventCounts:
    def __init__(self, live: LiveStore) -> None:
        self._live = live
        self._counts: Counter[Label] = Counter()
        self._sent_s = time.monotonic()
        self._lock = threading.Lock()

    def add(self, what: str, group: str, pipeline: str, owner: str, *, times: int = 1) -> None:
        with self._lock:
            self._counts[Label(what, group, pipeline, owner)] += times
        if time.monotonic() - self._sent_s >= SEND_EVERY_S:
            self.send()

    def send(self) -> None:
        """Into the slot of now; an outage costs what was counted."""
        with self._lock:
            counts, self._counts = self._counts, Counter()
            self._sent_s = time.monotonic()
        if not counts:
            return
        try:
            slot = RESOLUTIONS["fine"].start(self._live.server_now_ms() // 1_000)
            key = self._live.keys.in_shard(self._live.shards[0], "countsH")
            self._live.send(
                [("HINCRBY", key, f"{slot}|{each.to_text()}", n) for each, n in counts.items()]
            )
        except RedisError as error:
            log.debug("%d events are not counted: %s", counts.total(), error)
