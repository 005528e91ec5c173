"""Steering: a running worker's pool and queues follow what its node groups say.

It runs in the worker's main process, where Celery's own pool control is. The settings of the
groups are read with every beat, so a broadcast that was lost costs seconds, and a worker that
starts later does as the others do. Only the consumer's own thread touches the pool.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping
from typing import Any

from datp_tasks.live.redis_errors import RedisError
from datp_tasks.record.groups import NodeGroup

log = logging.getLogger("datp.groups")

#: Groups by name; None while they are not known.
ReadGroups = Callable[[], Mapping[str, NodeGroup] | None]


class Steering:
    def __init__(
        self,
        consumer: Any,
        served: frozenset[str],
        read: ReadGroups,
        *,
        every_s: float,
        on_look: Callable[[], object] = lambda: None,
    ) -> None:
        self._consumer = consumer
        self._served = served
        self._read = read
        self._every_s = every_s
        self._on_look = on_look
        self._started_with = _size(consumer)
        self._wanted: Mapping[str, NodeGroup] = {}
        self._nudged = threading.Event()
        self._stopped = False
        self._fixed_said = False
        self._thread = threading.Thread(target=self._run, name="datp-steering", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stopped = True
        self._nudged.set()

    def nudge(self) -> None:
        """Look now: a broadcast says that something has changed."""
        self._nudged.set()

    def _run(self) -> None:
        while not self._stopped:
            self.look()
            self._nudged.wait(self._every_s)
            self._nudged.clear()

    def look(self) -> None:
        try:
            self._on_look()
            found = self._read()
        except RedisError as error:
            log.warning("node groups stay as they were: %s", error)
            return
        except Exception:
            log.exception("node groups cannot be read; they stay as they were")
            return
        if found is None or self._stopped:
            return
        self._wanted = found
        if self._differs():
            self._consumer.call_soon(self.apply)

    def _differs(self) -> bool:
        queues = self._consuming() != self._running()
        return queues or (self._can_resize() and _size(self._consumer) != self._wanted_size())

    def apply(self) -> None:
        """In the consumer's thread: make queues and pool what they should be."""
        if self._stopped or getattr(self._consumer, "task_consumer", None) is None:
            return
        try:
            self._apply_queues()
            if self._can_resize():
                self._apply_size()
        except Exception as error:
            # The connection is being replaced, or all processes are busy: later again.
            log.info("the pool is not as its groups say yet: %s", error)

    def _apply_queues(self) -> None:
        consuming, running = self._consuming(), self._running()
        for group in sorted(consuming - running):
            self._consumer.cancel_task_queue(group)
            log.warning("group %s is stopped; its work queues up", group)
        for group in sorted(running - consuming):
            self._consumer.add_task_queue(group)
            log.warning("group %s goes on", group)

    def _apply_size(self) -> None:
        """What Celery's commands `pool_grow` and `pool_shrink` do, for as many as can be."""
        pool = self._consumer.pool
        before, wanted = _size(self._consumer), self._wanted_size()
        try:
            if wanted > before:
                pool.grow(wanted - before)
            elif wanted < before and len(pool.info["processes"]) <= before:
                # Not while one is still on its way out: it would be asked to go twice. Busy ones
                # stay, and what remains to be done raises.
                pool.shrink(before - wanted)
        finally:
            now = _size(self._consumer)
            if now != before:
                self._consumer._update_prefetch_count(now - before)
                log.warning("the pool has %d processes now, %d before", now, before)

    def _consuming(self) -> frozenset[str]:
        queues = self._consumer.app.amqp.queues.consume_from
        return frozenset(group for group in self._served if group in queues)

    def _running(self) -> frozenset[str]:
        return self._served - stopped(self._wanted)

    def _wanted_size(self) -> int:
        """The largest of its groups counts; one that nothing was said of is as it was started."""
        asked = [
            self._wanted[group].concurrency if group in self._wanted else None
            for group in self._running()
        ]
        sizes = [self._started_with if size is None else size for size in asked]
        return max(sizes) if sizes else _size(self._consumer)

    def _can_resize(self) -> bool:
        pool = self._consumer.pool
        if hasattr(pool, "grow") and not getattr(self._consumer.controller, "autoscaler", None):
            return True
        if not self._fixed_said and self._wanted_size() != self._started_with:
            self._fixed_said = True
            log.warning("this worker's pool cannot be resized; its concurrency stays as it is")
        return False


def stopped(groups: Mapping[str, NodeGroup]) -> frozenset[str]:
    return frozenset(name for name, group in groups.items() if group.is_stopped)


def _size(consumer: Any) -> int:
    return int(consumer.pool.num_processes)
