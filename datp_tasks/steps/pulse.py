"""The pulse: tells Redis, every couple of seconds, which nodes of this process live.

A node is one thread that runs hops. One that must not be trusted any more (its hop broke in the
middle) is retired: it stops beating, and the reaper takes over what it held.
"""

from __future__ import annotations

import json
import logging
import os
import secrets
import socket
import threading
from collections.abc import Callable
from importlib.metadata import version

from redis.exceptions import RedisError

from datp_tasks.live.store import LiveStore
from datp_tasks.settings import Settings

log = logging.getLogger("datp.node")

RECORD_TTL_S = 60


class Pulse:
    def __init__(
        self, live: LiveStore, settings: Settings, step_types: Callable[[], list[str]]
    ) -> None:
        self._live = live
        self._every_s = settings.node_beat_ms / 1_000
        self._step_types = step_types
        self._nodes: dict[str, frozenset[str]] = {}
        self._stopped = threading.Event()
        self._thread: threading.Thread | None = None

    def join(self, groups: frozenset[str]) -> str:
        """A new node that serves these groups; it is known before it claims anything."""
        node = f"{socket.gethostname()}-{os.getpid()}-{secrets.token_hex(4)}"
        self._nodes[node] = groups
        self._beat(node)
        return node

    def retire(self, node: str) -> None:
        self._nodes.pop(node, None)

    def start(self) -> None:
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="datp-pulse", daemon=True)
            self._thread.start()

    def stop(self) -> None:
        """Leave in order: a node that holds nothing need not be looked for."""
        self._stopped.set()
        for node, groups in list(self._nodes.items()):
            try:
                if not self._live.running_on(node):
                    self._live.forget_node(node)
                for group in groups:
                    self._live.redis.delete(self._live.keys.node(group, node))
            except RedisError as error:
                log.debug("node %s leaves without a word: %s", node, error)

    def beat_once(self) -> None:
        for node in list(self._nodes):
            self._beat(node)

    def _run(self) -> None:
        while not self._stopped.wait(self._every_s):
            try:
                self.beat_once()
            except RedisError as error:
                log.warning("no beat: %s", error)

    def _beat(self, node: str) -> None:
        self._live.beat(node)
        record = json.dumps(
            {
                "node": node,
                "host": socket.gethostname(),
                "pid": os.getpid(),
                "version": version("datp-tasks"),
                "stepTypes": self._step_types(),
            }
        )
        for group in self._nodes.get(node, ()):
            self._live.redis.set(self._live.keys.node(group, node), record, ex=RECORD_TTL_S)
