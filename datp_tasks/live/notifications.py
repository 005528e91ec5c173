"""Waiting for news of transactions: one subscription per process, many waiters.

A publish can be missed (the subscription was not there yet, or was broken), so a waiter reads
the state after it has registered, and again on a slow tick.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from redis import Redis

log = logging.getLogger("datp.notify")

RECONNECT_S = 0.5

#: Called in the listening thread with the id of a transaction, or with None after a gap: then
#: there may be news of any.
OnNews = Callable[[str | None], None]


class Notifications:
    """Wakes waiters when Redis publishes something about their transaction."""

    def __init__(self, redis: Redis, channel: str) -> None:
        self._redis = redis
        self._channel = channel
        self._waiters: dict[str, set[threading.Event]] = {}
        self._followers: list[OnNews] = []
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._closed = threading.Event()
        self._subscribed = threading.Event()

    @contextmanager
    def waiter(self, tx_id: str) -> Iterator[threading.Event]:
        """An event that is set whenever there may be news of this transaction."""
        news = threading.Event()
        with self._lock:
            self._waiters.setdefault(tx_id, set()).add(news)
        self._start()
        self._subscribed.wait(RECONNECT_S)
        try:
            yield news
        finally:
            with self._lock:
                others = self._waiters.get(tx_id, set())
                others.discard(news)
                if not others:
                    self._waiters.pop(tx_id, None)

    def follow(self, on_news: OnNews) -> None:
        """Hear of every transaction, for those who keep waiters of their own."""
        self._followers.append(on_news)
        self._start()

    def close(self) -> None:
        self._closed.set()

    def _start(self) -> None:
        with self._lock:
            if self._thread is None:
                self._thread = threading.Thread(
                    target=self._listen, name="datp-notify", daemon=True
                )
                self._thread.start()

    def _listen(self) -> None:
        while not self._closed.is_set():
            try:
                self._listen_until_broken()
            except Exception as error:
                # Also what redis-py raises when `close` takes the connection away from here.
                self._subscribed.clear()
                if not self._closed.wait(RECONNECT_S):
                    log.info("subscription lost, trying again: %s", error)

    def _listen_until_broken(self) -> None:
        with self._redis.pubsub() as subscription:  # type: ignore[no-untyped-call]
            subscription.subscribe(self._channel)
            while not self._closed.is_set():
                message = subscription.get_message(timeout=1.0)
                if message is None:
                    continue
                if message["type"] == "subscribe":
                    self._subscribed.set()
                    self._wake_all()
                elif message["type"] == "message":
                    self._wake(str(message["data"]))

    def _wake(self, text: str) -> None:
        """One message tells of all transactions of a vector, a line each."""
        told = [line.split(":", 2)[1] for line in text.split("\n") if line.count(":") >= 2]
        with self._lock:
            for tx_id in told:
                for news in self._waiters.get(tx_id, ()):
                    news.set()
        for on_news in self._followers:
            for tx_id in told:
                on_news(tx_id)

    def _wake_all(self) -> None:
        """What was published without a subscription is gone: each waiter must look."""
        with self._lock:
            for waiting in self._waiters.values():
                for news in waiting:
                    news.set()
        for on_news in self._followers:
            on_news(None)
