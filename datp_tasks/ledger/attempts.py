"""Attempts: one POST each, whose begin and end are commits.

The begin is committed before anything is sent. A write of the end that fails is tried again, never
the POST.
"""

from __future__ import annotations

import logging
import random
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future

from datp_tasks.failpoints import reach
from datp_tasks.ledger.batch_types import AttemptEnd, Begun, Tell, Work
from datp_tasks.ledger.decisions import ended
from datp_tasks.ledger.kinds import KINDS, address_mistake
from datp_tasks.ledger.ledger_wire import LedgerWire
from datp_tasks.outbound.messages import Exchange, NotSent
from datp_tasks.process_name import process_name
from datp_tasks.record.ledger_batches import BatchStore
from datp_tasks.record.sql_errors import InterfaceError, OperationalError
from datp_tasks.settings import Settings

log = logging.getLogger("datp.ledger")

WRITE_PAUSE_S = 0.2
#: PostgreSQL cannot be reached, or is just being restarted.
UNAVAILABLE = (OperationalError, InterfaceError)


class Attempts:
    def __init__(
        self,
        *,
        settings: Settings,
        batches: BatchStore,
        wire: LedgerWire,
        tell: Tell,
        clock: Callable[[], float] = time.monotonic,
        rng: random.Random | None = None,
    ) -> None:
        self._settings = settings
        self._batches = batches
        self._wire = wire
        self._tell = tell
        self._clock = clock
        self._rng = rng or random.Random()
        self.sender = process_name()

    def begin(self, works: Sequence[Work]) -> dict[Future[Exchange], Begun]:
        """Commit that attempts begin, then send them."""
        # Counted from before the commit: a pause in it must not lengthen the time to send.
        give_up_s = self._clock() + self._settings.ledger_http_s
        begun = self._batches.begin_many(works, self.sender)
        reach("ledger.after_begin")
        return {self._post(each, give_up_s): each for each in begun}

    def _post(self, begun: Begun, give_up_s: float) -> Future[Exchange]:
        mistake = address_mistake(begun, self._settings.ledger_hosts)
        if not mistake:
            try:
                request = KINDS[begun.kind].submission(begun)
            except Exception as error:
                # Of the package that brings the kind; others of this run have been sent.
                log.exception("the kind %s made no request", begun.kind)
                mistake = f"its kind made no request: {type(error).__name__}"
            else:
                return self._wire.start(begun, request, give_up_s)
        refused: Future[Exchange] = Future()
        refused.set_result(NotSent(mistake))
        return refused

    def finish(self, posts: Sequence[tuple[Future[Exchange], Begun]]) -> list[AttemptEnd]:
        """Record how attempts ended; those whose end counted."""
        hosts = self._settings.ledger_hosts
        all_ended = [
            ended(
                begun,
                post.result(),
                self._settings,
                self._rng,
                allowed=not address_mistake(begun, hosts),
            )
            for post, begun in posts
        ]
        reach("ledger.before_finish")
        counted = self._write(all_ended)
        reach("ledger.after_finish")
        return counted

    def _write(self, all_ended: Sequence[AttemptEnd]) -> list[AttemptEnd]:
        """A write that fails is tried again, never the POST. In the end the takeover asks."""
        give_up_s = self._clock() + self._settings.ledger_post_budget_s
        while True:
            try:
                counted, final = self._batches.finish_many(all_ended)
            except UNAVAILABLE as error:
                if self._clock() > give_up_s:
                    raise
                log.warning("the end of %d attempts is not recorded yet: %s", len(all_ended), error)
                time.sleep(WRITE_PAUSE_S)
            else:
                self._tell(final)
                return counted
