"""How much an owner may ask for: a rate, and a number of transactions in flight.

Both are shared by all processes. A process takes a few tokens along at a time, so that a busy
owner does not cost a round trip per request; and it counts what is in flight once a second, plus
what it accepted since. Limits protect the others: while Redis is unavailable, they refuse no
request.
"""

from __future__ import annotations

import asyncio
import logging
import math
import time
from collections import OrderedDict
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from datp_tasks.api.problems import limited
from datp_tasks.api.threads import Threads
from datp_tasks.live.rates import Granted, Rates
from datp_tasks.live.redis_errors import RedisError
from datp_tasks.record.api_keys import ApiKeys
from datp_tasks.record.database import translate_outage
from datp_tasks.record.sql_errors import OperationalError
from datp_tasks.settings import Settings

log = logging.getLogger("datp.api")

OWNERS_MAX = 10_000
#: Tokens that are taken along are good for so long, and are a small part of a second's.
LEASE_S = 1.0
LEASE_SHARE = 0.05
COUNT_EVERY_S = 1.0


@dataclass(slots=True)
class _Share:
    """What this process knows of one owner."""

    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    per_s: float = 0.0
    burst: int = 0
    in_flight_max: int = 0
    #: The header that says so.
    policy: bytes = b""
    read_again_s: float = 0.0
    tokens: int = 0
    #: Of the bucket, when it was asked last.
    left: float = 0.0
    left_at_s: float = 0.0
    tokens_until_s: float = 0.0
    refused_until_s: float = 0.0
    in_flight: int = 0
    count_again_s: float = 0.0


class RequestLimits:
    def __init__(self, keys: ApiKeys, rates: Rates, settings: Settings, threads: Threads) -> None:
        self._keys = keys
        self._rates = rates
        self._settings = settings
        self._threads = threads
        self._shares: OrderedDict[str, _Share] = OrderedDict()

    async def take(self, owner: str, cost: int = 1) -> None:
        """One request (or a bulk of so many) may go on, or a problem says when."""
        share = self._share(owner)
        if self._take_along(share, cost):
            return
        async with share.lock:
            # The thread that held the lock before may have brought some.
            if not self._take_along(share, cost):
                await self._ask(owner, share, cost)

    async def admit(self, owner: str, count: int = 1) -> None:
        """So many more transactions may be in flight, or a problem."""
        share = self._share(owner)
        if share.count_again_s <= time.monotonic():
            async with share.lock:
                if share.count_again_s <= time.monotonic():
                    await self._count(owner, share)
        if share.in_flight + count > share.in_flight_max:
            raise limited(
                f"{owner} has {share.in_flight} transactions and batches in flight; at most "
                f"{share.in_flight_max} are allowed. Wait until some have ended.",
                COUNT_EVERY_S,
            )
        share.in_flight += count

    @asynccontextmanager
    async def admitted(self, owner: str, *, taken: int, count: int) -> AsyncIterator[None]:
        """So many more transactions may be in flight; if not, the requests that were `taken` for
        them are given back.

        A client that comes again with less must not find its rate used up by what was not done.
        What is refused later was looked at, which is what the rate pays for; only the transactions
        are not counted then.
        """
        try:
            await self.admit(owner, count)
        except Exception:
            await self.give_back(owner, taken)
            raise
        counted_s = self._share(owner).count_again_s
        try:
            yield
        except Exception:
            share = self._share(owner)
            # What was counted anew since does not have these in it.
            if counted_s == share.count_again_s:
                share.in_flight -= count
            raise

    async def give_back(self, owner: str, cost: int) -> None:
        """What was taken for something that is not done after all."""
        share = self._share(owner)
        if not cost or not share.burst:
            return
        try:
            answer = await self._threads.run(
                self._rates.take, owner, per_s=share.per_s, burst=share.burst, cost=-cost
            )
        except RedisError as error:
            log.warning("Redis is unavailable; %s gets no tokens back: %s", owner, error)
            return
        if isinstance(answer, Granted):
            share.left, share.left_at_s = answer.left, time.monotonic()
            share.refused_until_s = 0.0

    def headers(self, owner: str) -> list[tuple[bytes, bytes]]:
        """What the owner may still ask for, as far as this process knows; nothing if it does not.

        As in draft-ietf-httpapi-ratelimit-headers: the quota and its window, what is left of it,
        and the seconds until all of it is there again.
        """
        share = self._shares.get(owner)
        if share is None or not share.burst:
            return []
        now_s = time.monotonic()
        left = share.left + (now_s - share.left_at_s) * share.per_s
        if share.tokens_until_s > now_s:
            left += share.tokens
        if share.refused_until_s > now_s:
            left = 0.0
        left = max(0.0, min(share.burst, left))
        full_s = math.ceil((share.burst - left) / share.per_s)
        return [
            (b"ratelimit-policy", share.policy),
            (b"ratelimit", f'"requests";r={int(left)};t={full_s}'.encode()),
        ]

    def _share(self, owner: str) -> _Share:
        share = self._shares.get(owner)
        if share is None:
            share = self._shares[owner] = _Share()
            if len(self._shares) > OWNERS_MAX:
                self._shares.popitem(last=False)
        return share

    def _take_along(self, share: _Share, cost: int) -> bool:
        now_s = time.monotonic()
        if share.refused_until_s > now_s:
            raise _too_often(share, share.refused_until_s - now_s)
        if share.tokens < cost or share.tokens_until_s <= now_s:
            return False
        share.tokens -= cost
        return True

    async def _ask(self, owner: str, share: _Share, cost: int) -> None:
        if share.read_again_s <= time.monotonic():
            await self._read(owner, share)
        more = min(int(share.per_s * LEASE_SHARE), share.burst // 10)
        try:
            answer = await self._threads.run(
                self._rates.take,
                owner,
                per_s=share.per_s,
                burst=share.burst,
                cost=cost,
                more=more,
            )
        except RedisError as error:
            log.warning("Redis is unavailable; rates are not limited now: %s", error)
            answer = Granted(max(more, int(share.per_s * LEASE_S)), share.burst)
        now_s = time.monotonic()
        if isinstance(answer, Granted):
            share.tokens, share.tokens_until_s = answer.more, now_s + LEASE_S
            share.left, share.left_at_s = answer.left, now_s
            return
        share.refused_until_s = now_s + answer.wait_ms / 1_000
        raise _too_often(share, answer.wait_ms / 1_000)

    async def _read(self, owner: str, share: _Share) -> None:
        try:
            found = await self._threads.run(self._keys.limits, owner)
        except OperationalError as error:
            if not share.burst:
                with translate_outage():
                    raise
            log.warning("the limits of %s are those of before: %s", owner, error)
            return
        settings = self._settings
        share.per_s = found.requests_per_s or settings.owner_requests_per_s
        share.burst = found.burst_max or settings.owner_burst_max
        window_s = math.ceil(share.burst / share.per_s)
        share.policy = f'"requests";q={share.burst};w={window_s}'.encode()
        given = found.in_flight_max
        share.in_flight_max = settings.owner_in_flight_max if given is None else given
        share.read_again_s = time.monotonic() + settings.key_cache_s

    async def _count(self, owner: str, share: _Share) -> None:
        def count() -> int:
            with translate_outage():
                return self._keys.in_flight(owner, count_max=share.in_flight_max + 1)

        if not share.burst:
            await self._read(owner, share)
        share.in_flight = await self._threads.run(count)
        share.count_again_s = time.monotonic() + COUNT_EVERY_S


def _too_often(share: _Share, wait_s: float) -> Exception:
    return limited(
        f"At most {share.per_s:g} requests a second are allowed, {share.burst} at once.", wait_s
    )
