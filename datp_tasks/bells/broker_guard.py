"""Four repairs of kombu's Redis transport: without two of them a broker restart can stop a worker
for good.

Measured with celery 5.7.0, kombu 5.7.0 and redis-py 8.1.0, killing the server again and again:

1. The exit. When the connection is lost, celery 5.7.0 calls `collect()`, which sets
   `transport.client` to None, and then `close()`, which hands unacked messages back over a channel
   that builds its pool from `transport.client`. The AttributeError that follows counts as
   unrecoverable and the worker ends. Here it is a ConnectionError, which the worker recovers from.
2. The hang. A task that ends while the broker is down cannot be acked, but its prefetch slot stays
   taken. Once all slots are lost so, the worker asks for no message any more and never sees that
   its connection is dead. Here the slot is freed: the next read meets the dead connection. Our own
   workers send no ack (`ack_emulation` in celeryconfig.py); this is for a process that has others.
3. The dump. Without acks kombu writes messages that it cannot hand back over a dead connection to
   a file for people. Here they are given up: they are bells, and the reconciler rings again.
4. Starvation. A worker that is never idle never sees a priority below one that always has a
   message, and a doorbell that is rung all the time always has one. Here each priority is the
   first that is asked for now and then.

Another version of kombu is left alone: it must be measured first.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from importlib import import_module
from typing import Any

log = logging.getLogger("datp.bells")

TESTED_KOMBU = "5.7.0"
#: Of so many times that a worker asks for a message, one begins below the most urgent.
OTHER_FIRST_EVERY = 4


def install() -> bool:
    """Repair the transport of this process; False if this is not the kombu it was made for."""
    try:
        transport: Any = import_module("kombu.transport.redis")
        version = import_module("kombu").__version__
        gone = import_module("redis.exceptions").ConnectionError
        channel, qos, free_slot = transport.Channel, transport.QoS, transport.virtual.QoS.ack
        connparams, ack, reject = channel._connparams, qos.ack, qos.reject
        errors = transport.Transport.connection_errors
    except (ImportError, AttributeError):
        return False
    if version != TESTED_KOMBU or hasattr(connparams, "guarded"):
        return bool(version == TESTED_KOMBU)

    def guarded_connparams(self: Any, asynchronous: bool = False) -> Any:
        if getattr(self.connection, "client", None) is None:
            raise gone("the broker connection of this channel is closed")
        return connparams(self, asynchronous)

    def guarded_ack(self: Any, delivery_tag: str) -> None:
        try:
            ack(self, delivery_tag)
        except errors:
            free_slot(self, delivery_tag)
            raise

    def guarded_reject(self: Any, delivery_tag: str, requeue: bool = False) -> None:
        try:
            reject(self, delivery_tag, requeue)
        except errors:
            free_slot(self, delivery_tag)
            raise

    vars(guarded_connparams)["guarded"] = True
    channel._connparams, qos.ack, qos.reject = guarded_connparams, guarded_ack, guarded_reject
    _keep_in_memory(channel, transport.virtual.QoS, errors)
    _serve_every_priority(channel)
    return True


class _Begun(list[int]):
    """Priorities that are gone through from another one than the first; kombu looks others up in
    their order."""

    first: int

    def __iter__(self) -> Iterator[int]:
        return iter([self.first, *(step for step in list.__iter__(self) if step != self.first)])


def _serve_every_priority(channel: Any) -> None:
    """Let a worker begin with another priority than the most urgent now and then: each in turn, or
    those between would wait for those at both ends."""
    start = channel._brpop_start

    def start_in_turn(self: Any, timeout: Any = None) -> None:
        asked = vars(self)["asked"] = vars(self).get("asked", 0) + 1
        turn, left = divmod(asked, OTHER_FIRST_EVERY)
        urgent_first = self.priority_steps
        others = urgent_first[1:]
        if left or not others:
            start(self, timeout)
            return
        self.priority_steps = _Begun(urgent_first)
        self.priority_steps.first = others[-turn % len(others)]
        try:
            start(self, timeout)
        finally:
            self.priority_steps = urgent_first

    channel._brpop_start = start_in_turn


def _keep_in_memory(channel: Any, qos: Any, errors: tuple[type[Exception], ...]) -> None:
    """Let channels without acks hand back what they have without a word to people."""
    make = channel.__init__

    class HeldMessages(qos):  # type: ignore[misc]
        """Which messages a worker has, without a list of them in Redis."""

        def reject(self, delivery_tag: str, requeue: bool = False) -> None:
            # What was handed back when its connection was lost is not handed back again.
            super().reject(delivery_tag, requeue and delivery_tag in self._delivered)

        def restore_unacked(self) -> list[Any]:
            self._flush()
            left = list(self._delivered.values())
            self._delivered.clear()
            try:
                while left:
                    self.channel._restore(left[0])
                    del left[0]
            except errors as error:
                log.warning("%d messages could not be handed back: %s", len(left), error)
            return []

    def make_channel(self: Any, *args: Any, **options: Any) -> None:
        make(self, *args, **options)
        if not self.ack_emulation:
            self.QoS = HeldMessages

    channel.__init__ = make_channel
