"""Linked transactions: legs with one deadline that commit together, or roll back together.

Whether they commit is decided once, in one commit that marks the rows of all legs as past their
point of no return. Before it each leg can expire, fail or be cancelled, and then none commits.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Literal

from sqlalchemy import Connection, Engine
from sqlalchemy.exc import OperationalError

from datp_tasks.clock import Clock
from datp_tasks.errors import LinkRefused, StaleFence
from datp_tasks.failpoints import reach
from datp_tasks.model.pipeline_rules import LINK_EXPIRES_S
from datp_tasks.model.status import Status
from datp_tasks.record.queries import Queries

#: How long is waited for a leg that is in the middle of a transactional step.
LOCK_MS = 500
LOCK_NOT_AVAILABLE = "55P03"


class Query(Queries, topic="linked"):
    serialize: str
    limit_wait: str
    join: str
    ready: str
    members: str
    share_deadline: str
    pass_together: str


@dataclass(frozen=True, slots=True)
class Leg:
    """Who asks: a transaction under a claim."""

    tx_id: str
    owner: str
    fence: int


@dataclass(frozen=True, slots=True)
class LinkVerdict:
    """`commit`: all legs are past their point of no return. `stop`: none ever will be."""

    word: Literal["wait", "commit", "stop"]
    note: str = ""


class LinkedTransactions:
    def __init__(self, engine: Engine, clock: Clock) -> None:
        self._engine = engine
        self._clock = clock

    def join(self, leg: Leg, link: str, size: int, *, expires_in_s: float) -> datetime:
        """Make it a leg; when all of them expire. It can be repeated. LinkRefused if it is one
        too many; StaleFence if another worker has it.

        A link of which no leg has a deadline has one so many seconds after its first leg joins.
        """
        with self._deciding(leg, link) as connection:
            values: dict[str, Any]
            values = {"link": link, "size": size, "tx_id": leg.tx_id, "fence": leg.fence}
            if connection.exec_driver_sql(Query.join, values).first() is None:
                raise StaleFence
            members = self._members(connection, leg, link)
            sizes = {each.link_size for each in members}
            if len(sizes) > 1:
                raise LinkRefused(f"the legs of {link} say different numbers of legs: {sizes}")
            if len(members) > size:
                raise LinkRefused(f"{link} has {size} legs already")
            times: list[datetime] = [each.expires_at for each in members if each.expires_at]
            deadline = min(times, default=members[0].now + timedelta(seconds=expires_in_s))
            self._share(connection, members, deadline)
            return deadline

    def commit(self, leg: Leg, link: str) -> LinkVerdict:
        """This leg is ready; what became of all. It can be repeated."""
        try:
            verdict = self._commit(leg, link)
        except OperationalError as error:
            if getattr(error.orig, "pgcode", None) != LOCK_NOT_AVAILABLE:
                raise
            return LinkVerdict("wait")
        reach("linked.after_commit")
        return verdict

    def _commit(self, leg: Leg, link: str) -> LinkVerdict:
        with self._deciding(leg, link) as connection:
            values = {"tx_id": leg.tx_id, "fence": leg.fence, "now": self._clock.now()}
            row = connection.exec_driver_sql(Query.ready, values).first()
            if row is None:
                raise StaleFence
            if row.link_id != link:
                return LinkVerdict("stop", f"it is no leg of {link}")
            members = self._members(connection, leg, link)
            verdict = _verdict(members, leg.tx_id)
            if verdict.word == "commit":
                values = {"tx_id": [each.tx_id for each in members], "now": self._clock.now()}
                connection.exec_driver_sql(Query.pass_together, values)
            elif verdict.word == "wait" and not any(each.expires_at for each in members):
                # Legs that joined under a release before have none, and would wait for ever.
                deadline = members[0].now + timedelta(seconds=LINK_EXPIRES_S)
                self._share(connection, members, deadline)
            return verdict

    def _share(self, connection: Connection, members: list[Any], deadline: datetime) -> None:
        values = {"tx_id": [each.tx_id for each in members], "expires_at": deadline}
        connection.exec_driver_sql(Query.share_deadline, {**values, "now": self._clock.now()})

    @contextmanager
    def _deciding(self, leg: Leg, link: str) -> Iterator[Connection]:
        with self._engine.begin() as connection:
            connection.exec_driver_sql(Query.limit_wait, {"lock_ms": str(LOCK_MS)})
            connection.exec_driver_sql(Query.serialize, {"owner": leg.owner, "link": link})
            yield connection

    def _members(self, connection: Connection, leg: Leg, link: str) -> list[Any]:
        values = {"owner": leg.owner, "link": link, "now": self._clock.now()}
        return list(connection.exec_driver_sql(Query.members, values))


def _verdict(members: list[Any], asking: str) -> LinkVerdict:
    is_whole = len(members) == members[0].link_size
    is_ready = is_whole and all(each.link_ready_at is not None for each in members)
    # One leg alone may have passed a point of its own; that decides nothing for the others.
    if is_ready and all(each.no_return_at is not None for each in members):
        return LinkVerdict("commit")
    # A leg that cannot expire must be told that another has.
    is_bound = any(each.tx_id == asking and each.no_return_at is not None for each in members)
    unlike = (Status.SUCCESS,) if is_bound else (Status.SUCCESS, Status.EXPIRED)
    for each in members:
        if each.completed_at is not None and each.status not in unlike:
            return LinkVerdict("stop", f"its linked transaction {each.tx_id} is {each.status}")
        if each.stop_request is not None:
            return LinkVerdict("stop", f"its linked transaction {each.tx_id} was cancelled")
    if not is_ready:
        return LinkVerdict("wait")
    # One whose time is over takes the others along: their deadline is the same.
    if any(each.completed_at or each.expiring_at or each.is_overdue for each in members):
        return LinkVerdict("wait")
    return LinkVerdict("commit")
