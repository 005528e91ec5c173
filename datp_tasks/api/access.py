"""Who asks: an API key in the header, checked against the record and remembered for seconds."""

from __future__ import annotations

import asyncio
import logging
import time
from collections import OrderedDict
from dataclasses import dataclass
from typing import TypeVar

from datp_tasks.api.batcher import TooMany
from datp_tasks.api.problems import Problem, limited
from datp_tasks.api.threads import Threads
from datp_tasks.errors import DatabaseUnavailable
from datp_tasks.model.actor import Actor
from datp_tasks.record.api_keys import ApiKey, ApiKeys
from datp_tasks.record.database import translate_outage
from datp_tasks.settings import Settings

T = TypeVar("T")

log = logging.getLogger("datp.api")

#: Keys, and addresses with failures; beyond that the oldest are forgotten.
REMEMBERED_MAX = 10_000
HEADER_CHARS_MAX = 200
#: Wrong keys from one address: so many at once, then so many a second.
FAILURES_MAX = 100
FAILURES_PER_S = 5.0
#: How old the list of keys that have followed to another pepper may be.
FOLLOWED_S = 10.0
#: Keys that may be on their way to the record at once.
LOOKUPS_MAX = 200


@dataclass(frozen=True, slots=True)
class Caller:
    """Whose request it is."""

    owner: str
    #: With role, grants, key and request, as the audit keeps it.
    actor: Actor

    @property
    def is_operator(self) -> bool:
        return self.actor.is_operator

    def may_see(self, owner: str) -> bool:
        return self.actor.may_see(owner)


class Gate:
    """Lets in who has a key. A revoked key is refused after `key_cache_s` at the latest."""

    def __init__(self, keys: ApiKeys, settings: Settings, threads: Threads) -> None:
        self._keys = keys
        self._keep_s = settings.key_cache_s
        self._threads = threads
        #: By hash, so that no key lies in memory for longer than its request.
        self._known: OrderedDict[str, tuple[float, Actor]] = OrderedDict()
        #: Apart from the good ones, so that a flood of wrong keys does not make them forgotten.
        self._wrong: OrderedDict[str, float] = OrderedDict()
        self._failures = Failures()
        #: Ids of keys that have followed to another pepper; None: not read yet.
        self._followed: frozenset[str] | None = None
        self._followed_until_s = 0.0
        self._reading: asyncio.Task[None] | None = None
        self._asking: dict[str, asyncio.Task[Actor | None]] = {}

    async def admit(
        self, authorization: str | None, *, request_id: str | None, address: str
    ) -> Caller:
        """The caller, or a problem that says what is missing."""
        kind, _, text = (authorization or "").partition(" ")
        if kind.lower() != "bearer" or not text or len(text) > HEADER_CHARS_MAX:
            raise self._refusal(address, "Send an API key: Authorization: Bearer datp_…")
        digest = self._keys.hash(text)
        until_s, known = self._known.get(digest, (0.0, None))
        if until_s <= time.monotonic():
            # One that was good is asked about again whatever else comes from its address.
            if known is None:
                self._failures.refuse_flood(address)
            known = await self._ask(digest, text)
        if known is None or known.owner is None:
            raise self._refusal(address, "This API key is unknown, has expired or was revoked.")
        return Caller(known.owner, known.asking(request_id, address))

    def _refusal(self, address: str, detail: str) -> Problem:
        self._failures.refuse_flood(address)
        self._failures.note(address)
        return _unauthorized(detail)

    async def _ask(self, digest: str, text: str) -> Actor | None:
        """However many requests come with the same key, the record is asked once."""
        if self._wrong.get(digest, 0.0) > time.monotonic():
            return None
        if not self._keys.can_be(text) and not await self._has_followed(text):
            return None
        task = self._asking.get(digest)
        if task is None:
            if len(self._asking) >= LOOKUPS_MAX:
                raise TooMany
            task = asyncio.create_task(self._look_up(digest, text))
            self._asking[digest] = task
            task.add_done_callback(lambda _: self._asking.pop(digest, None))
        # Shielded: one who goes away must not take the answer from the others.
        return await asyncio.shield(task)

    async def _has_followed(self, text: str) -> bool:
        """Whether it may be a key that was made under an earlier pepper.

        The record is asked for all of them, seldom, and not because of this key: made-up keys cost
        it nothing.
        """
        key_id = self._keys.id_in(text)
        if key_id is None:
            return False
        if self._followed_until_s <= time.monotonic():
            if self._reading is None or self._reading.done():
                self._reading = asyncio.create_task(self._read_followed())
            await asyncio.shield(self._reading)
        if self._followed is None:
            # A key that is good must not be told that it is wrong.
            raise DatabaseUnavailable("which API keys there are cannot be read now")
        return key_id in self._followed

    async def _read_followed(self) -> None:
        """If it fails, what was read before counts for as long: an outage is not made worse."""
        until_s = time.monotonic() + FOLLOWED_S
        try:
            self._followed = await self._threads.run(self._all_followed)
        except DatabaseUnavailable as error:
            log.warning("the keys that followed to another pepper cannot be read: %s", error)
        self._followed_until_s = until_s

    def _all_followed(self) -> frozenset[str]:
        with translate_outage():
            return self._keys.followed()

    async def _look_up(self, digest: str, text: str) -> Actor | None:
        # The time before the question counts: an answer is as old as its question.
        until_s = time.monotonic() + self._keep_s
        found = await self._threads.run(self._verified, text)
        if found is None:
            self._known.pop(digest, None)
            _remember(self._wrong, digest, until_s)
            return None
        actor = found.actor()
        _remember(self._known, digest, (until_s, actor))
        return actor

    def _verified(self, text: str) -> ApiKey | None:
        with translate_outage():
            found = self._keys.verify(text)
            if found is not None:
                self._keys.note_used(found.id)
        return found


class Failures:
    """How many wrong keys came from an address lately: a bucket that fills up again."""

    def __init__(self) -> None:
        #: When, and how many were counted then.
        self._counted: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def refuse_flood(self, address: str) -> None:
        count = self._count(address)
        if count + 1 > FAILURES_MAX:
            # Closed: a flood then costs its sender a connection for each try.
            wait_s = (count - FAILURES_MAX + 1) / FAILURES_PER_S
            problem = limited(f"Too many requests without a valid key came from {address}.", wait_s)
            problem.headers = {**(problem.headers or {}), "Connection": "close"}
            raise problem

    def note(self, address: str) -> None:
        _remember(self._counted, address, (time.monotonic(), self._count(address) + 1))

    def _count(self, address: str) -> float:
        at_s, count = self._counted.get(address, (0.0, 0.0))
        return max(0.0, count - (time.monotonic() - at_s) * FAILURES_PER_S)


def _remember(known: OrderedDict[str, T], name: str, value: T) -> None:
    known[name] = value
    known.move_to_end(name)
    while len(known) > REMEMBERED_MAX:
        known.popitem(last=False)


def _unauthorized(detail: str) -> Problem:
    return Problem(401, "unauthorized", detail, headers={"WWW-Authenticate": 'Bearer realm="datp"'})
