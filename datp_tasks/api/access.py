"""Who asks: an API key in the header, checked against the record and remembered for seconds."""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict
from dataclasses import dataclass, replace

from datp_tasks.api.problems import Problem
from datp_tasks.api.threads import Threads
from datp_tasks.model.actor import Actor
from datp_tasks.record.api_keys import ApiKey, ApiKeys
from datp_tasks.record.database import translate_outage
from datp_tasks.settings import Settings

REMEMBERED_MAX = 10_000
HEADER_CHARS_MAX = 200


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
        self._known: OrderedDict[str, tuple[float, Actor | None]] = OrderedDict()
        self._asking: dict[str, asyncio.Task[Actor | None]] = {}

    async def admit(
        self, authorization: str | None, *, request_id: str | None, address: str | None
    ) -> Caller:
        """The caller, or a problem that says what is missing."""
        kind, _, text = (authorization or "").partition(" ")
        if kind.lower() != "bearer" or not text or len(text) > HEADER_CHARS_MAX:
            raise _unauthorized("Send an API key: Authorization: Bearer datp_…")
        digest = self._keys.hash(text)
        until_s, known = self._known.get(digest, (0.0, None))
        if until_s <= time.monotonic():
            known = await self._ask(digest, text)
        if known is None or known.owner is None:
            raise _unauthorized("This API key is unknown, has expired or was revoked.")
        return Caller(known.owner, replace(known, request_id=request_id, address=address))

    async def _ask(self, digest: str, text: str) -> Actor | None:
        """However many requests come with the same key, the record is asked once."""
        task = self._asking.get(digest)
        if task is None:
            task = asyncio.create_task(self._look_up(digest, text))
            self._asking[digest] = task
            task.add_done_callback(lambda _: self._asking.pop(digest, None))
        # Shielded: one who goes away must not take the answer from the others.
        return await asyncio.shield(task)

    async def _look_up(self, digest: str, text: str) -> Actor | None:
        # The time before the question counts: an answer is as old as its question.
        until_s = time.monotonic() + self._keep_s
        found = await self._threads.run(self._verified, text)
        actor = found.actor() if found else None
        self._known[digest] = until_s, actor
        self._known.move_to_end(digest)
        while len(self._known) > REMEMBERED_MAX:
            self._known.popitem(last=False)
        return actor

    def _verified(self, text: str) -> ApiKey | None:
        with translate_outage():
            found = self._keys.verify(text)
            if found is not None:
                self._keys.note_used(found.id)
        return found


def _unauthorized(detail: str) -> Problem:
    return Problem(401, "unauthorized", detail, headers={"WWW-Authenticate": 'Bearer realm="datp"'})
