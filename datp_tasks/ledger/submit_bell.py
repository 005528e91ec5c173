"""Submit messages: which batches are in turn, under which epoch. Ids only; hints, as all bells."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Any

from celery import Celery

from datp_tasks.ledger.batch_types import Work
from datp_tasks.live.live_types import PRIORITIES

log = logging.getLogger("datp.ledger")

SUBMIT_TASK = "datp.ledger.submit"
NAME_CHARS_MAX = 200


class SubmitBell:
    """Sends the task to the queue of those who submit batches now."""

    def __init__(self, app: Celery, queue: Callable[[], str]) -> None:
        self._app = app
        self._queue = queue

    def __call__(self, works: Sequence[Work]) -> None:
        self._app.send_task(
            SUBMIT_TASK,
            args=([list(work) for work in works],),
            queue=self._queue(),
            priority=PRIORITIES["in"],
            argsrepr=", ".join(work.service_id for work in works[:3]),
            kwargsrepr="{}",
        )


def readable_works(given: Any) -> list[Work]:
    """What can be meant; anything else is dropped with a line in the log."""
    if not isinstance(given, list | tuple):
        log.warning("a submit message without a list was dropped: %.100r", given)
        return []
    good = []
    for each in given:
        match each:
            case [str() as service, str() as batch, int() as epoch] if (
                len(service) <= NAME_CHARS_MAX
                and len(batch) <= NAME_CHARS_MAX
                and "\x00" not in service + batch
                and 0 <= epoch < 2**63
            ):
                good.append(Work(service, batch, epoch))
            case _:
                log.warning("something that is no work was dropped: %.100r", each)
    return good
