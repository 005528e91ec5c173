"""The naive form: Grid's plan with its syntax mended, and nothing else. Controls for the tests.

It claims by name and expiry, keeps what it fetched in memory, marks a batch as submitted without
comparing anything, posts again when no answer comes, and writes down whatever it hears. A test
that this passes proves nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import httpx

from datp_tasks.ledger.batch_types import Asked, Begun
from datp_tasks.ledger.kinds import KINDS
from datp_tasks.model.ledger_batch import BatchState
from tests.support.ledger_world import SERVICE, World, payload_of

TABLES = """
DROP TABLE IF EXISTS naive_batch; DROP TABLE IF EXISTS naive_claim;
CREATE TABLE naive_claim (service_id text PRIMARY KEY, claimant text, expiry timestamptz);
CREATE TABLE naive_batch (service_id text, batch_id text PRIMARY KEY, seq int,
                          submitted boolean DEFAULT false, status text);
"""
TTL_S = 30
RETRIES = 2


class Crash(Exception):
    """The process died here."""


@dataclass
class NaiveWorld:
    """The batches of a world, recorded the naive way."""

    world: World

    def __post_init__(self) -> None:
        self.world.sql(TABLES)
        self.world.sql("INSERT INTO naive_claim (service_id) VALUES (:s)", s=SERVICE)

    def submit(self, *ids: str) -> None:
        for seq, each in enumerate(ids, 1):
            self.world.sql(
                "INSERT INTO naive_batch (service_id, batch_id, seq) VALUES (:s, :b, :seq)",
                s=SERVICE,
                b=each,
                seq=seq,
            )
        self.world.submitted[SERVICE] = list(ids)

    def status(self, batch_id: str) -> str | None:
        rows = self.world.sql("SELECT status FROM naive_batch WHERE batch_id = :b", b=batch_id)
        return None if rows[0].status is None else str(rows[0].status)

    def violations(self) -> list[str]:
        executed = self.world.executed()
        ids = self.world.submitted[SERVICE]
        found = [f"{each[:8]} executed twice" for each in ids if executed.count(each) > 1]
        found += [f"{each[:8]} not executed" for each in ids if each not in executed]
        found += [
            f"{each[:8]} recorded as {self.status(each)}"
            for each in ids
            if self.status(each) != "COMMITTED"
        ]
        return found


@dataclass
class NaiveInstance:
    name: str
    naive: NaiveWorld
    #: Variant: a claim has no expiry, so it dies with its instance.
    expires: bool = True
    #: Variant: unknown means send again at once.
    resends_unknown: bool = False
    queue: list[str] = field(default_factory=list)
    #: What to do at a named point, once.
    at: dict[str, Callable[[], None]] = field(default_factory=dict)

    @property
    def _world(self) -> World:
        return self.naive.world

    def _sql(self, statement: str, **values: Any) -> list[Any]:
        now = self._world.now_s()
        return self._world.sql(statement, me=self.name, now=now, ttl=TTL_S, s=SERVICE, **values)

    def _reach(self, point: str) -> None:
        act = self.at.pop(point, None)
        if act is not None:
            act()

    def tick(self) -> None:
        """Renew, claim, fetch."""
        self._sql("UPDATE naive_claim SET expiry = to_timestamp(:now + :ttl) WHERE claimant = :me")
        self._reach("after_renew")
        expired = "expiry < to_timestamp(:now)" if self.expires else "false"
        self._sql(
            "UPDATE naive_claim SET claimant = :me, expiry = to_timestamp(:now + :ttl)"
            f" WHERE claimant IS NULL OR {expired}"
        )
        self._reach("after_claim")
        rows = self._sql(
            "SELECT b.batch_id, b.status FROM naive_batch b JOIN naive_claim c USING (service_id)"
            " WHERE c.claimant = :me AND coalesce(b.status, '') NOT IN ('COMMITTED', 'INVALID')"
            " AND NOT (b.submitted AND b.status IS NULL) AND coalesce(b.status, '') <> 'PENDING'"
            " AND NOT EXISTS (SELECT 1 FROM naive_batch e WHERE e.seq < b.seq"
            "                 AND coalesce(e.status, '') NOT IN ('COMMITTED', 'INVALID'))"
            " ORDER BY b.seq LIMIT 1"
        )
        self.queue += [row.batch_id for row in rows]

    def deliver(self) -> None:
        queue, self.queue = self.queue, []
        for batch_id in queue:
            self._submit(batch_id)

    def _submit(self, batch_id: str) -> None:
        self._sql("UPDATE naive_batch SET submitted = true WHERE batch_id = :b", b=batch_id)
        self._reach("after_begin")
        request = KINDS[self._world.kind].submission(_begun(self._world, batch_id))
        for _ in range(RETRIES):
            self._reach("before_send")
            try:
                answer = httpx.post(
                    request.url,
                    content=request.content,
                    headers=dict(request.headers),
                    timeout=0.3,
                    trust_env=False,
                )
            except httpx.HTTPError:
                continue
            self._reach("before_finish")
            status = "PENDING" if answer.status_code == 202 else "DELAYED"
            self._sql(
                "UPDATE naive_batch SET status = :t WHERE batch_id = :b", t=status, b=batch_id
            )
            self._reach("after_finish")
            return

    def poll(self) -> None:
        """Ask for what is pending; that it is unknown is discarded, as the plan says."""
        rows = self._sql("SELECT batch_id, submitted, status FROM naive_batch WHERE submitted")
        for row in rows:
            if row.status != "PENDING" and not (self.resends_unknown and row.status is None):
                continue
            seen = self._ask(row.batch_id)
            if seen is BatchState.UNKNOWN:
                if self.resends_unknown:
                    self._submit(row.batch_id)
            else:
                self._sql(
                    "UPDATE naive_batch SET status = :t WHERE batch_id = :b",
                    t=str(seen),
                    b=row.batch_id,
                )

    def _ask(self, batch_id: str) -> BatchState:
        kind = KINDS[self._world.kind]
        [(request, _)] = kind.questions([_asked(self._world, batch_id)])
        answer = httpx.get(request.url, headers=dict(request.headers), trust_env=False)
        from datp_tasks.outbound.messages import Response

        return kind.statuses(Response(answer.status_code, answer.content))[batch_id].state


def _begun(world: World, batch_id: str) -> Begun:
    return Begun(
        service_id=SERVICE,
        batch_id=batch_id,
        kind=world.kind,
        url=world.server.url,
        payload=payload_of(batch_id),
        epoch=1,
        attempt=1,
        possible=1,
    )


def _asked(world: World, batch_id: str) -> Asked:
    return Asked(
        service_id=SERVICE,
        batch_id=batch_id,
        kind=world.kind,
        url=world.server.url,
        state=BatchState.PENDING,
        attempts=1,
        possible=1,
        resubmits=0,
        unknown_seen=0,
        grace_over=False,
        swallow_over=False,
    )


def settle(naive: NaiveWorld, *instances: NaiveInstance, rounds: int = 40) -> None:
    for _ in range(rounds):
        for instance in instances:
            instance.tick()
            instance.deliver()
            instance.poll()
        naive.world.advance(2)
