"""The main process of a worker: it follows its node groups and runs no transaction itself."""

from __future__ import annotations

import logging
from dataclasses import dataclass, field
from typing import Any

from celery import Celery

from datp_tasks.engine.steering import Steering, stopped
from datp_tasks.errors import DatabaseUnavailable
from datp_tasks.live.connect import make_redis
from datp_tasks.live.group_copy import GroupCopy
from datp_tasks.live.keys import Keys
from datp_tasks.live.redis_errors import RedisError
from datp_tasks.observe.task_events import SharedFlag, wants_task_events
from datp_tasks.record.database import require_tables
from datp_tasks.record.sql_errors import SQLAlchemyError
from datp_tasks.runtime.container import Container
from datp_tasks.settings import Settings

log = logging.getLogger("datp.app")


@dataclass
class WorkerInfo:
    """What the main process says and its pool processes inherit."""

    name: str = ""
    #: The groups that the worker was started for, also those that are stopped now; None before
    #: it is known.
    served: frozenset[str] | None = None
    #: Whether Celery's events of tasks are listened to.
    events_wanted: SharedFlag = field(default_factory=SharedFlag)


class MainProcess:
    def __init__(self, app: Celery, settings: Settings, info: WorkerInfo) -> None:
        self._app = app
        self._settings = settings
        self._info = info
        self._steering: Steering | None = None

    def set_up(self, worker_name: str) -> None:
        """Before the pool is made: know the groups, and do not begin with one that is stopped.

        On a database without tables no job and no transaction could be run: SettingsError.
        """
        queues = self._app.amqp.queues
        self._info.served = served = frozenset(queues.consume_from)
        self._info.name = worker_name
        # A container of its own, closed at once: the pool must not inherit a connection.
        container = Container.open(self._settings, celery=self._app)
        try:
            _require_tables(container)
            queues.deselect(sorted(stopped(container.groups.current()) & served))
        except (RedisError, SQLAlchemyError) as error:
            log.warning("node groups are not known yet: %s", error)
        finally:
            container.close()

    def steer(self, consumer: Any) -> None:
        """From now on, pool and queues follow what the groups say."""
        # Only the copy in Redis is read here: a connection to SQL must not be forked.
        copy = GroupCopy(make_redis(self._settings), Keys(self._settings.key_prefix))
        self._steering = Steering(
            consumer,
            self._info.served or frozenset(),
            copy.read,
            every_s=self._settings.node_beat_ms / 1_000,
            on_look=lambda: self._info.events_wanted.set(wants_task_events(consumer)),
        )
        self._steering.start()

    def look_at_groups(self) -> None:
        if self._steering is not None:
            self._steering.nudge()

    def stop_steering(self) -> None:
        if self._steering is not None:
            self._steering.stop()

    def forget(self) -> None:
        """After a fork: the steering belongs to the parent."""
        self._steering = None


def _require_tables(container: Container) -> None:
    """While PostgreSQL is unavailable it is not known whether there are any."""
    try:
        require_tables(container.engine)
    except DatabaseUnavailable as error:
        log.warning("PostgreSQL is unavailable (%s); the worker goes on trying", error.reason)
    except SQLAlchemyError as error:
        # Whatever it is, a group that is stopped must stay so.
        log.warning("it is not known whether the database has its tables: %s", error)
