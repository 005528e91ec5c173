"""Reading one transaction without the rest of the client, which takes longer to import than to ask.

`datp status` and `datp watch` use it. Of one that has ended SQL knows everything, so not even the
Redis library is imported; of the others Redis knows more. Only one that has left Redis needs the
container, because it is restored.
"""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

from datp_tasks.clock import ServerClock
from datp_tasks.record.database import make_engine, translate_outage
from datp_tasks.record.transactions import Record

if TYPE_CHECKING:
    from datp_tasks.client.reads import LookMethods
    from datp_tasks.live.store import LiveStore
    from datp_tasks.record.types import Summary
    from datp_tasks.runtime.container import Container
    from datp_tasks.settings import Settings


class Reader:
    """The part of the client that tells the status of a transaction."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._record = Record(make_engine(settings), ServerClock())

    def status(self, tx_id: str) -> Summary:
        """As `Client.status`."""
        with translate_outage():
            found = self._record.summaries([tx_id])
        if found and found[0].is_final:
            return found[0]
        return self._with_redis.status(tx_id)

    @cached_property
    def _with_redis(self) -> LookMethods:
        return _with_redis(self._settings, self._record)


def _with_redis(settings: Settings, record: Record) -> LookMethods:
    from redis import Redis

    from datp_tasks.client.reads import LookMethods
    from datp_tasks.live.store import LiveStore

    class Looking(LookMethods):
        """The reading half of the client; the other half is imported if it must restore."""

        _record = record

        @cached_property
        def _live(self) -> LiveStore:  # type: ignore[override]
            if settings.redis_cluster == "on":
                return self._connections.live
            redis: Redis = Redis.from_url(
                settings.redis_url,
                decode_responses=True,
                socket_timeout=settings.redis_timeout_s,
                socket_connect_timeout=settings.redis_timeout_s,
            )
            return LiveStore(redis, settings, ServerClock())

        @cached_property
        def _connections(self) -> Container:  # type: ignore[override]
            from datp_tasks.runtime.container import Container

            return Container.open(settings)

    return Looking()
