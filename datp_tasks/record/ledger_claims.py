"""Claims: which instance queues the batches of which service, under which epoch, until when.

Everything is decided by PostgreSQL and its clock. An instance has one lease; its claims end with
it. A lease that has run out is never renewed: the instance starts anew under another name, so a
claim can only go on with a higher epoch. `begin` refuses an instance that shows an older one.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import partial

from sqlalchemy import Connection

from datp_tasks.record.ledger_sql import Sql, tried_again
from datp_tasks.record.ledger_types import Claim, Work, claim_from_row
from datp_tasks.record.queries import Queries
from datp_tasks.settings import Settings


class Query(Queries, topic="ledger_claims"):
    join: str
    renew: str
    leave: str
    forget_instances: str
    mark_late: str
    survey: str
    counts: str
    take_unclaimed: str
    take_former: str
    mark_orphans: str
    release: str
    any_due: str
    lock_due: str
    lock_claimed: str
    look: str
    claims: str


@dataclass(frozen=True, slots=True)
class Survey:
    """What an instance sees when it looks around."""

    live: frozenset[str]
    #: Their leases have run out. With two-phase expiry some of their services may not be free yet.
    dead: frozenset[str]
    #: Some service is not claimed.
    unclaimed: bool
    any_service: bool


class ClaimStore:
    def __init__(self, sql: Sql, settings: Settings) -> None:
        self._sql = sql
        ttl_s = settings.ledger_claim_ttl_s
        two_phase = settings.ledger_expiry == "two-phase"
        self._lease = {"ttl": ttl_s, "slow": settings.ledger_slow_ttl_s if two_phase else ttl_s}
        self._ring_again_s = settings.ledger_ring_again_s

    # The lease of an instance.

    def join(self, instance: str) -> None:
        self._sql.run(Query.join, {"me": instance, **self._lease})

    def renew(self, instance: str) -> bool:
        """False: the lease has run out, and everything that was claimed under it is lost."""
        return bool(self._sql.run(Query.renew, {"me": instance, **self._lease}))

    def leave(self, instance: str) -> None:
        """End the lease now, so that others need not wait for it to run out."""
        self._sql.run(Query.leave, {"me": instance})

    # What a tick does, in this order.

    def clean_up(self, *, rows_max: int) -> int:
        """Forget instances that hold nothing; attempts that no instance will end become UNKNOWN."""
        self._sql.run(Query.forget_instances)
        return len(self._sql.run(Query.mark_late, {"limit": rows_max}))

    def survey(self) -> Survey:
        rows = self._sql.run(Query.survey)
        return Survey(
            live=frozenset(row.instance for row in rows if row.instance and row.is_live),
            dead=frozenset(row.instance for row in rows if row.instance and not row.is_live),
            unclaimed=rows[0].unclaimed,
            any_service=rows[0].any_service,
        )

    def counts(self) -> dict[str | None, int]:
        """How many services each claimant has; None for those that are not claimed."""
        return {row.claimant: row.services for row in self._sql.run(Query.counts)}

    def claim(self, instance: str, *, dead: Iterable[str], rows_max: int) -> list[tuple[str, int]]:
        """Take services that are not claimed or whose claimant is gone; (service, epoch) of each.

        Those with something to do come first. What a former claimant had begun is UNKNOWN from
        the same commit on.
        """
        taken: list[tuple[str, int]] = []
        for former in (None, *sorted(dead)):
            left = rows_max - len(taken)
            if left > 0:
                taken += tried_again(partial(self._take, instance, former, left))
        return taken

    def _take(self, instance: str, former: str | None, rows_max: int) -> list[tuple[str, int]]:
        values = {"me": instance, "former": former, "limit": rows_max}
        take = Query.take_unclaimed if former is None else Query.take_former
        with self._sql.transaction() as connection:
            rows = self._sql.rows(connection, take, values)
            taken = [(row.service_id, row.epoch) for row in rows]
            if taken and former is not None:
                # A statement of its own: in the same one, an attempt that was begun between its
                # snapshot and its locks would be missed.
                services = {"services": [service for service, _ in taken]}
                self._sql.rows(connection, Query.mark_orphans, services)
        return taken

    def release(self, instance: str, *, rows_max: int) -> int:
        """Give services away, idle ones first; those in the middle of a submission stay."""
        values = {"me": instance, "limit": rows_max}
        return len(self._sql.run(Query.release, values))

    def next_work(self, instance: str, *, rows_max: int) -> list[Work]:
        """The first batch in line of each service that is due, for the submitter."""
        values = {"me": instance, "limit": rows_max}
        # Without a lock first: most of the time nothing is due, and one round trip says so.
        if not self._sql.run(Query.any_due, values):
            return []
        with self._sql.transaction() as connection:
            rows = self._sql.rows(connection, Query.lock_due, values)
            return self._look(connection, [row.service_id for row in rows])

    def work_of(self, services: Sequence[str]) -> list[Work]:
        """The same for these services, whichever instance has claimed them."""
        with self._sql.transaction() as connection:
            values = {"services": sorted(set(services))}
            rows = self._sql.rows(connection, Query.lock_claimed, values)
            return self._look(connection, [row.service_id for row in rows])

    def _look(self, connection: Connection, services: list[str]) -> list[Work]:
        """A statement of its own, after the locks: it sees every batch that was there before."""
        if not services:
            return []
        values = {"services": services, "again": self._ring_again_s}
        rows = self._sql.rows(connection, Query.look, values)
        return [Work(row.service_id, row.batch_id, row.epoch) for row in rows if row.rings]

    # For people.

    def claims(
        self, *, rows_max: int, service_id: str | None = None, after: str | None = None
    ) -> list[Claim]:
        values = {"limit": rows_max, "service": service_id, "after": after}
        return [claim_from_row(row) for row in self._sql.run(Query.claims, values)]
