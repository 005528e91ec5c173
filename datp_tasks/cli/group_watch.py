"""Node groups that appear while `datp up` runs: each gets a worker."""

from __future__ import annotations

import logging
import os
import threading
from typing import Self

from redis.exceptions import RedisError
from sqlalchemy.exc import DBAPIError

from datp_tasks.errors import DatpError
from datp_tasks.local.stack import Stack
from datp_tasks.runtime.container import Container
from datp_tasks.settings import Settings

LOOK_EVERY_S = 1.0

log = logging.getLogger("datp.cli")


def node_groups(connections: Container) -> list[str]:
    """The maintenance group first, then every group that a pipeline in use needs."""
    groups = {connections.settings.maintenance_group: None}
    for info in connections.pipelines.list():
        try:
            definition = connections.catalogue.current(info.name)
        except DatpError:
            continue
        groups |= dict.fromkeys(
            definition.group_of(index) for index in range(len(definition.steps))
        )
    return list(groups)


class GroupWatch:
    """Asks in a thread of its own, so that a server that hangs does not stop the supervisor.

    Workers are started by `look` in the caller's thread, because Linux ties the life of a child to
    the thread that started it.
    """

    def __init__(self, stack: Stack) -> None:
        self._stack = stack
        self._settings = Settings.from_env({**os.environ, **stack.urls.as_environment()})
        self._found: list[str] = []
        self._ends = threading.Event()
        self._thread = threading.Thread(target=self._ask, name="datp-groups", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ends.set()

    def look(self) -> None:
        """Start a worker for each group that was found and has none; never waits."""
        self._stack.add_workers(self._found)

    def _ask(self) -> None:
        connections = Container.open(self._settings)
        try:
            while not self._ends.wait(LOOK_EVERY_S):
                try:
                    self._found = node_groups(connections)
                except (DatpError, DBAPIError, RedisError) as error:
                    log.info("the node groups are not known: %s", error)
        finally:
            connections.close()
