"""A kit with steps of every kind, and what an archive can be put through."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from sqlalchemy import text

from datp_tasks import Call, Done, Fail, Pipeline, Sleep, failpoints
from datp_tasks.jobs.archiver import Archiver, Result
from datp_tasks.live.archive_feed import ArchiveFeed
from datp_tasks.live.live_types import Bell
from datp_tasks.model.journal import Entry
from datp_tasks.model.status import Status
from datp_tasks.record.journal import Journal, Row
from datp_tasks.runtime import jobs
from datp_tasks.runtime.container import Container
from datp_tasks.testing import Kit

Data = dict[str, Any]
HOUR_S = 3_600.0


class World:
    def __init__(self, kit: Kit) -> None:
        self.kit = kit
        #: What the steps did, in order: step and transaction.
        self.did: list[tuple[str, str]] = []
        #: What the probe answers.
        self.answer: Any = Done({"found": True})
        #: Called inside t/pay and t/ask after their effect.
        self.after_effect: Callable[[], None] = lambda: None
        self._declare_steps()
        self._declare_unsafe_steps()
        kit.use(
            Pipeline("child", startable=False).step("t/book").build(),
            Pipeline("quick").step("t/book").build(),
            Pipeline("rest").step("t/book").step("t/rest").step("t/book").build(),
            Pipeline("wait").step("t/wait").step("t/book").build(),
            Pipeline("pay").step("t/book").step("t/pay").step("t/book").build(),
            Pipeline("ask").step("t/book").step("t/ask").step("t/book").build(),
            Pipeline("undo").step("t/book").step("t/rest").step("t/fail").build(),
            Pipeline("family").step("t/call").step("t/rest").build(),
            Pipeline("hop").step("t/book").step("t/book", dispatch="queue").build(),
        )

    def _declare_steps(self) -> None:
        kit, did = self.kit, self.did

        @kit.step("t/book")
        def book(ctx: Any, data: Data) -> Data:
            did.append(("book", ctx.tx_id))
            return {**data, "booked": data.get("booked", 0) + 1}

        @book.rollback
        def unbook(ctx: Any, data: Data, output: Data | None) -> None:
            did.append(("unbook", ctx.tx_id))

        @kit.step("t/rest")
        def rest(ctx: Any, data: Data) -> Any:
            return Sleep(seconds=data.get("seconds", HOUR_S)) if ctx.sleeps == 0 else None

        @kit.step("t/wait")
        def wait(ctx: Any, data: Data) -> Any:
            go = ctx.switch("go")
            return Sleep(switch="go", seconds=86_400) if go is None else {**data, "go": go}

        @kit.step("t/fail")
        def fail(ctx: Any, data: Data) -> None:
            raise Fail("no")

        @kit.step("t/call")
        def call(ctx: Any, data: Data) -> Any:
            return Call("child", data)

    def _declare_unsafe_steps(self) -> None:
        kit, did = self.kit, self.did

        @kit.step("t/pay", on_crash="review", timeout_s=30)
        def pay(ctx: Any, data: Data) -> Data:
            did.append(("pay", ctx.tx_id))
            self.after_effect()
            return {**data, "paid": True}

        @pay.rollback
        def unpay(ctx: Any, data: Data, output: Data | None) -> None:
            did.append(("unpay", f"{ctx.tx_id} {output}"))

        @kit.step("t/ask", on_crash="probe", timeout_s=30)
        def ask(ctx: Any, data: Data) -> Data:
            did.append(("ask", ctx.tx_id))
            self.after_effect()
            return {**data, "asked": True}

        @ask.probe
        def probe(ctx: Any, data: Data) -> Any:
            return self.answer

    # Moving.

    def archive(self) -> Result:
        result: Result = self.kit.run_job("archiver")
        return result

    def queued(self, pipeline: str, data: Data | None = None, **options: Any) -> str:
        """Accepted, and nobody heard the bell."""
        self.kit.lose_bells()
        tx_id = self.kit.submit(pipeline, data or {}, **options)
        self.kit.lose_bells(False)
        return tx_id

    def run_one_hop(self) -> None:
        """Let the bell that was rung last be heard, and none of those that it leads to."""
        step_type, pairs = self.kit.send.rung[-1]
        deaf, self.kit.send.deaf = self.kit.send.deaf, True
        self.kit.celery.tasks[f"datp.step.{step_type}"].apply_async(args=(pairs,))
        self.kit.send.deaf = deaf

    def ring(self, tx_id: str) -> None:
        """As the reconciler does for one that waits too long."""
        bells = self.kit.connections.live.ring_again_many([tx_id])
        self.kit.connections.bells.ringer.ring([each for each in bells if isinstance(each, Bell)])

    def crashed(self, pipeline: str, point: str, *, nth: int = 1) -> str:
        """Its worker was lost at a point."""
        self.kit.crash_at(point, nth=nth)
        tx_id = self.kit.submit(pipeline, {})
        assert self.kit.send.crashes
        return tx_id

    def asleep_and_gone(self, pipeline: str = "rest", data: Data | None = None, **o: Any) -> str:
        """Asleep for long, archived, and evicted."""
        tx_id = self.kit.submit(pipeline, data or {}, **o)
        assert self.status(tx_id) == "sleeping"
        self.archive()
        self.evict(tx_id)
        return tx_id

    def evict(self, *tx_ids: str) -> None:
        """As the TTL would, which must be there."""
        live = self.kit.connections.live
        for tx_id in tx_ids:
            assert (self.ttl_s(tx_id) or 0) > 0, f"{tx_id} would not leave"
            live.redis.delete(live.keys.state(tx_id))

    def wipe(self) -> None:
        """FLUSHALL, as far as this kit is concerned."""
        redis = self.kit.connections.redis
        keys = list(redis.scan_iter(match=f"{self.kit.settings.key_prefix}:*", count=1_000))
        if keys:
            redis.delete(*keys)

    @contextmanager
    def rewound(self) -> Iterator[None]:
        """When the block is over, Redis is again where it was before it."""
        redis = self.kit.connections.redis
        pattern = f"{self.kit.settings.key_prefix}:*"
        before = [(key, redis.pttl(key), redis.dump(key)) for key in redis.scan_iter(match=pattern)]
        yield
        self.wipe()
        for key, ttl_ms, value in before:
            redis.restore(key, max(ttl_ms, 0), value or b"")

    def at(self, point: str, action: Callable[[], Any]) -> None:
        """Do something while the code is at a point, once."""
        failpoints.arm(point, lambda: (action(), None)[1])

    # Looking.

    def status(self, tx_id: str) -> str | None:
        """As Redis has it."""
        return self.fields(tx_id).get("status")

    def fields(self, tx_id: str) -> dict[str, str]:
        return self.kit.connections.live.fields_many([tx_id])[0]

    def ttl_s(self, tx_id: str) -> float | None:
        live = self.kit.connections.live
        left_ms = int(live.redis.pttl(live.keys.state(tx_id)))
        return None if left_ms < 0 else left_ms / 1_000

    def due(self) -> set[str]:
        """In the archiver's list, whatever the time."""
        return {tx for tx, _ in self.kit.connections.live.listed("toArchiveZ", rows_max=10_000)}

    def archived(self, tx_id: str) -> Data | None:
        row = self.sql("SELECT fields::text FROM tx_state WHERE tx_id = :tx", tx=tx_id)
        return None if not row else json.loads(row[0][0])

    def archived_version(self, tx_id: str) -> int | None:
        found = self.sql("SELECT version FROM tx_state WHERE tx_id = :tx", tx=tx_id)
        return int(found[0][0]) if found else None

    def journal(self, tx_id: str) -> list[Row]:
        connections = self.kit.connections
        return Journal(connections.engine, connections.clock).rows([tx_id])

    def entries(self, tx_id: str) -> list[Entry]:
        connections = self.kit.connections
        journal = Journal(connections.engine, connections.clock)
        return journal.entries([tx_id]).get(tx_id, [])

    def backlog(self) -> int:
        return ArchiveFeed(self.kit.connections.live).journal_length()

    def sql(self, query: str, **values: Any) -> list[Any]:
        with self.kit.connections.engine.begin() as connection:
            found = connection.execute(text(query), values)
            return list(found) if found.returns_rows else []

    def faults(self) -> dict[str, list[str]]:
        """What an audit of everything finds."""
        return {each.tx_id: each.faults for each in self.kit.operator.audit() if each.faults}

    def times(self, what: str, tx_id: str) -> int:
        return Counter(self.did)[what, tx_id]

    def ends(self, tx_id: str) -> Status:
        """Where it comes to rest, with as much time as it needs."""
        for _ in range(20):
            self.kit.recover()
            summary = self.kit.finish(tx_id)
            if summary.is_final or summary.status is Status.IN_DOUBT:
                break
        return summary.status

    def archiver(self) -> Archiver:
        tables = jobs.archiver_tables(self.kit.connections, self.kit.settings)
        limits = jobs.archiver_limits(self.kit.settings)
        return Archiver(self.kit.connections.live, tables, limits)

    def without(self, **addresses: Any) -> Container:
        """The container of a process that cannot reach one of the servers."""
        settings = replace(self.kit.settings, **addresses)
        return Container.open(settings, clock=self.kit.clock, send=self.kit.send)
