"""What an operator asks the broker about node groups, and tells their workers."""

from __future__ import annotations

import logging
from collections.abc import Iterable

from celery import Celery
from kombu.exceptions import OperationalError

from datp_tasks.bells.broker import backlog
from datp_tasks.live.redis_errors import RedisError

log = logging.getLogger("datp.bells")

#: The broker's library raises its own errors, and those of the connection below it.
UNAVAILABLE = (OperationalError, RedisError, OSError)


class GroupQueues:
    """The queues of node groups; one that cannot be asked is left out of an answer."""

    def __init__(self, celery: Celery) -> None:
        self._celery = celery

    def waiting(self, groups: Iterable[str]) -> dict[str, int]:
        """How many messages wait for each group; without those that the broker did not tell."""
        try:
            return {group: backlog(self._celery, group) for group in groups}
        except UNAVAILABLE as error:
            log.warning("the broker does not answer: %s", error)
            return {}

    def tell_workers(self) -> None:
        """That a group was changed. They look with every heartbeat; told, they look at once."""
        try:
            self._celery.control.broadcast("datp_groups")
        except UNAVAILABLE as error:
            log.info("the workers were not told: %s", error)

    def close(self) -> None:
        self._celery.close()
