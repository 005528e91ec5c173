"""Bells as Celery messages."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType
from typing import Any
from weakref import WeakSet

from celery import Celery

from datp_tasks.bells import broker_guard
from datp_tasks.errors import SettingsError
from datp_tasks.live.live_types import PRIORITIES
from datp_tasks.settings import Settings

TASK_PREFIX = "datp.step."
#: RabbitMQ hands out the highest number first, kombu's Redis transport the lowest. A queue that
#: exists cannot get more levels, so these stay within the first ones that there were.
RABBIT_MAX = 6
RABBIT = {0: 6, 3: 4, 6: 2, 7: 1, 9: 0}
CELERYCONFIG = Path(__file__).resolve().parents[2] / "celeryconfig.py"

#: Apps that send messages, to see how a user has set them.
_MADE: WeakSet[Celery] = WeakSet()


def make_celery(settings: Settings, *, eager: bool = False) -> Celery:
    """A Celery app that sends to, and takes from, the queues of these settings.

    An eager one is for the test kit, which has a way of its own to ring.
    """
    broker_guard.install()
    made = _RabbitCelery if settings.broker_url.startswith("amqp") else Celery
    app = made("datp_tasks", set_as_current=False)
    app.config_from_object(_celeryconfig(), force=True)
    app.conf.broker_url = settings.broker_url
    if made is _RabbitCelery:
        # The others are words of the Redis transport.
        app.conf.broker_transport_options = {"confirm_publish": True}
        app.conf.task_queue_max_priority = RABBIT_MAX
        app.conf.task_default_priority = 0
    if eager:
        app.conf.update(task_always_eager=True, task_eager_propagates=True)
    else:
        _MADE.add(app)
    return app


def refuse_eager() -> None:
    """SettingsError if an app of ours was told to run tasks at once, which it cannot."""
    if any(app.conf.task_always_eager for app in list(_MADE)):
        raise SettingsError(
            "Celery's task_always_eager is set on the app of datp_tasks and is not supported: a "
            "message is only a hint, and sleepers, retries and crashes need beat and workers. In "
            "tests use the fixture `datp`, which runs everything at once (docs/testing.md)"
        )


class _RabbitCelery(Celery):  # type: ignore[misc]
    """Turns our priorities into RabbitMQ's."""

    def send_task(self, *args: Any, **options: Any) -> Any:
        if options.get("priority") is not None:
            options["priority"] = RABBIT[options["priority"]]
        return super().send_task(*args, **options)


@cache
def _celeryconfig() -> ModuleType:
    """The file beside this package: a module of that name on the path may be another one."""
    spec = spec_from_file_location("datp_celeryconfig", CELERYCONFIG)
    assert spec is not None and spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


class CelerySend:
    """Rings by sending the step type's task to the queue of the node group."""

    def __init__(self, app: Celery) -> None:
        self._app = app

    def __call__(
        self,
        step_type: str,
        pairs: list[tuple[str, int]],
        *,
        group: str,
        priority: str,
        answers: str = "",
    ) -> None:
        self._app.send_task(
            TASK_PREFIX + step_type,
            args=(pairs, answers) if answers else (pairs,),
            queue=group,
            priority=PRIORITIES[priority],
            # Flower and logs show this: ids are all there is.
            argsrepr=shown_ids(tx_id for tx_id, _ in pairs),
            kwargsrepr="{}",
        )


def shown_ids(tx_ids: Iterable[str]) -> str:
    """All of them: who looks for a transaction in Flower must find it."""
    return ", ".join(tx_ids)


def backlog(app: Celery, group: str) -> int:
    """How many bells wait in the queue of a node group."""
    with app.connection_for_read() as connection:
        try:
            return int(connection.default_channel.queue_declare(group, passive=True).message_count)
        except connection.channel_errors:
            return 0
