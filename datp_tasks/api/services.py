"""What the routes of one API process share."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass

from fastapi import Request
from sqlalchemy.exc import DBAPIError, OperationalError

from datp_tasks.api.access import Caller, Gate
from datp_tasks.api.batcher import Batcher
from datp_tasks.api.limits import Limits
from datp_tasks.api.metrics import Meter
from datp_tasks.api.problems import not_found
from datp_tasks.api.threads import Threads
from datp_tasks.api.waiting import Waiters
from datp_tasks.client.client import Client
from datp_tasks.client.requests import Request as Wanted
from datp_tasks.client.requests import Submitted
from datp_tasks.live.notifications import Notifications
from datp_tasks.live.rates import Rates
from datp_tasks.record.api_keys import ApiKeys
from datp_tasks.record.events import Events
from datp_tasks.record.listing import Listing
from datp_tasks.record.types import Summary
from datp_tasks.runtime.container import Container
from datp_tasks.settings import Settings

log = logging.getLogger("datp.api")

#: A second lane for accepts would only make the batches smaller.
ACCEPT_LANES = 1
LOOK_LANES = 2

Accepted = Submitted | Exception


@dataclass(frozen=True, kw_only=True)
class Services:
    settings: Settings
    connections: Container
    client: Client
    keys: ApiKeys
    threads: Threads
    gate: Gate
    limits: Limits
    accepts: Batcher[Wanted, Accepted]
    looks: Batcher[str, Summary | None]
    seen: Batcher[Summary, None]
    waiters: Waiters
    listing: Listing
    events: Events
    meter: Meter

    @classmethod
    def open(cls, connections: Container) -> Services:
        """Within the event loop; nothing is connected yet."""
        settings = connections.settings
        threads = Threads(settings.api_threads_max)
        client = Client(connections)
        keys = ApiKeys(connections.engine, connections.clock, settings.key_pepper)
        rates = Rates(connections.redis, connections.live.keys, connections.clock)
        listing = Listing(connections.engine)
        events = Events(connections.engine, connections.clock)
        notifications = Notifications(connections.redis, connections.live.keys.notify)
        waiters = Waiters(notifications, listing.sequences, settings, threads)
        queues = {"batch_max": settings.submit_batch_max, "waiting_max": settings.accept_queue_max}
        return cls(
            settings=settings,
            connections=connections,
            client=client,
            keys=keys,
            threads=threads,
            gate=Gate(keys, settings, threads),
            limits=Limits(keys, rates, settings, threads),
            accepts=Batcher(
                lambda wanted: accept(client, wanted), threads, lanes=ACCEPT_LANES, **queues
            ),
            looks=Batcher(client.status_many, threads, lanes=LOOK_LANES, **queues),
            seen=Batcher(lambda shown: mark_seen(events, shown), threads, **queues),
            waiters=waiters,
            listing=listing,
            events=events,
            meter=Meter(lambda: len(waiters)),
        )

    async def close(self) -> None:
        await self.waiters.close()
        await self.threads.run(self.client.close)
        self.threads.close()

    async def note_seen(self, summary: Summary) -> None:
        """Its client knows what it shows; if that cannot be written down, the webhook tells."""
        try:
            await self.seen.do(summary)
        except Exception as error:
            log.warning("that %s was seen is not written down: %s", summary.tx_id, error)

    async def look(self, caller: Caller, tx_id: str) -> Summary:
        """A transaction that the caller may see, or a problem that tells nothing else."""
        found = await self.looks.do(tx_id)
        if found is None or not caller.may_see(found.owner):
            raise not_found("such transaction")
        return found


def services_of(request: Request) -> Services:
    found: Services = request.app.state.services
    return found


def caller_of(request: Request) -> Caller:
    found: Caller = request.state.caller
    return found


def accept_bulk(client: Client, wanted: Sequence[Wanted], *, batch_max: int) -> Sequence[Accepted]:
    """As many as the caller likes. What is committed stays so if the database goes away half-way:
    those that are not say so themselves."""
    answers: list[Accepted] = []
    for start in range(0, len(wanted), batch_max):
        batch = wanted[start : start + batch_max]
        try:
            answers += accept(client, batch)
        except Exception as error:
            if start == 0:
                raise
            answers += [error] * len(batch)
    return answers


def accept(client: Client, wanted: Sequence[Wanted]) -> Sequence[Accepted]:
    """Commit one batch; if the database cannot take one of them, the others do not suffer."""
    try:
        return client.submit_many(wanted)
    except DBAPIError as error:
        if isinstance(error, OperationalError):
            raise
        if len(wanted) == 1:
            return [error]
    # The statement failed as a whole, so nothing of it was stored.
    return [accept(client, [each])[0] for each in wanted]


def mark_seen(events: Events, shown: Sequence[Summary]) -> Sequence[None]:
    """Their clients know these events now."""
    for each in shown:
        events.mark_notified(each.tx_id, each.sequence, each.cancel_webhook_on_poll)
    return [None] * len(shown)
