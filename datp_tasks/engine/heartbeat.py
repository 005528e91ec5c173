"""The heartbeat: tells Redis, every couple of seconds, which nodes of this process live.

A node is one thread that runs hops. One that must not be trusted any more (its hop broke in the
middle) is retired: it stops beating, and the reaper takes over what it held.
"""

from __future__ import annotations

import logging
import os
import socket
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from importlib.metadata import version
from typing import Any

from datp_tasks.build_info import built_at
from datp_tasks.engine.registry import Registry
from datp_tasks.live.nodes import NodeRegister
from datp_tasks.live.redis_errors import RedisError
from datp_tasks.live.store import LiveStore
from datp_tasks.process_name import unique_name
from datp_tasks.settings import Settings

log = logging.getLogger("datp.node")

#: Beats after which a node says again what its step types are for.
DESCRIBED_EVERY = 30


@dataclass(frozen=True, slots=True)
class Load:
    """What a node has done so far, and is doing now."""

    busy: bool
    hops: int
    transactions: int
    #: Seconds spent in hops.
    busy_s: float


IDLE = Load(busy=False, hops=0, transactions=0, busy_s=0.0)


@dataclass(slots=True)
class _Beating:
    groups: frozenset[str]
    joined_ms: int
    load: Callable[[], Load] = lambda: IDLE
    last: Load = IDLE
    last_s: float = 0.0


class Heartbeat:
    def __init__(
        self,
        live: LiveStore,
        settings: Settings,
        steps: Registry,
        *,
        worker: str = "",
        on_beat: Callable[[], object] = lambda: None,
    ) -> None:
        self._live = live
        self._settings = settings
        self._every_s = settings.node_beat_ms / 1_000
        self._steps = steps
        self._beats = 0
        self._worker = worker
        self._on_beat = on_beat
        self._register = NodeRegister(
            live, stale_ms=settings.node_stale_ms, grace_ms=settings.node_grace_ms
        )
        self._nodes: dict[str, _Beating] = {}
        self._stopped = threading.Event()
        self._thread: threading.Thread | None = None

    def join(self, groups: frozenset[str]) -> str:
        """A new node that serves these groups; it is known before it claims anything."""
        node = unique_name()
        beating = _Beating(groups, self._live.server_now_ms(), last_s=time.monotonic())
        self._nodes[node] = beating
        self._describe()
        self._beat(node, beating)
        return node

    def measure(self, node: str, load: Callable[[], Load]) -> None:
        """From now on its record shows how busy it is."""
        if node in self._nodes:
            self._nodes[node].load = load

    def retire(self, node: str) -> None:
        self._nodes.pop(node, None)

    def start(self) -> None:
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="datp-heartbeat", daemon=True)
            self._thread.start()

    def stop(self) -> None:
        """Leave in order: a node that holds nothing need not be looked for."""
        self._stopped.set()
        for node, beating in list(self._nodes.items()):
            try:
                if not self._live.running_on(node):
                    self._live.forget_node(node)
                self._register.leave(node, beating.groups)
            except RedisError as error:
                log.debug("node %s leaves without a word: %s", node, error)

    def beat_once(self) -> None:
        self._beats += 1
        if self._beats % DESCRIBED_EVERY == 0:
            # Redis may have lost it.
            self._describe()
        for node, beating in list(self._nodes.items()):
            self._beat(node, beating)

    def _describe(self) -> None:
        about = {
            "version": version("datp-tasks"),
            "build": self._settings.build,
            "buildTime": built_at(),
        }
        described = self._steps.described()
        self._register.describe({name: {**each, **about} for name, each in described.items()})

    def _run(self) -> None:
        while not self._stopped.wait(self._every_s):
            try:
                self.beat_once()
                self._on_beat()
            except RedisError as error:
                log.warning("no beat: %s", error)

    def _beat(self, node: str, beating: _Beating) -> None:
        self._live.beat(node)
        self._register.write(
            node,
            beating.groups,
            {
                "node": node,
                "worker": self._worker,
                "host": socket.gethostname(),
                "pid": os.getpid(),
                "version": version("datp-tasks"),
                "build": self._settings.build,
                "buildTime": built_at(),
                "joinedMs": beating.joined_ms,
                "stepTypes": self._steps.names(),
                "load": _shown_load(beating),
            },
        )
        if self._stopped.is_set():
            # It left while this beat was on its way.
            self._register.leave(node, beating.groups)


def _shown_load(beating: _Beating) -> dict[str, Any]:
    """What it does now and did on average since the last beat."""
    load, now_s = beating.load(), time.monotonic()
    last, took_s = beating.last, max(now_s - beating.last_s, 1e-3)
    beating.last, beating.last_s = load, now_s
    return {
        "slots": 1,
        "busy": int(load.busy),
        "busyShare": round(min(1.0, (load.busy_s - last.busy_s) / took_s), 3),
        "hopsPerS": round((load.hops - last.hops) / took_s, 1),
        "transactionsPerS": round((load.transactions - last.transactions) / took_s, 1),
        "transactions": load.transactions,
    }
