"""A pipeline with a point of no return is broken at every point it passes.

Its time is short, so that whatever waits for a repair expires, unless SQL has recorded the point.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest
from sqlalchemy import text

from datp_tasks import Batch, Pipeline
from datp_tasks.model.status import Status
from datp_tasks.record.record_types import Summary
from datp_tasks.testing import Kit, crash_sweep
from datp_tasks.testing.sweep import MOVERS

Data = dict[str, Any]

EXPIRES_S = 5
ALL = bool(os.environ.get("DATP_SWEEP_ALL"))
#: Around the commit that records the point, and the step itself.
HARMFUL = ("hop.after_point", "hop.after_step", "commit:points", "commit:effects", "effect:n/pay")
PAY = "INSERT INTO test_paid SELECT unnest(cast(:tx AS text[]))"


class PointWorld:
    def __init__(self, kit: Kit) -> None:
        self.kit = kit
        self.held: Counter[str] = Counter()
        self.sent: Counter[str] = Counter()
        with kit.connections.engine.begin() as sql:
            sql.exec_driver_sql("DROP TABLE IF EXISTS test_paid")
            sql.exec_driver_sql("CREATE TABLE test_paid (tx text PRIMARY KEY)")

        @kit.step("n/hold")
        def hold(ctx: Any, data: Data) -> None:
            self.held[ctx.tx_id] = 1

        @hold.rollback(partial=True)
        def release(ctx: Any, data: Data, output: Data | None) -> None:
            self.held[ctx.tx_id] = 0

        @kit.step("n/send")
        def send(ctx: Any, data: Data) -> None:
            self.sent[ctx.tx_id] += 1

        @kit.step("n/pay", transactional=True)
        def pay(ctx: Any, data: Data) -> None:
            ctx.sql.execute(text(PAY), {"tx": [ctx.tx_id]})

        @kit.step("n/pay-many", transactional=True, vector=True)
        def pay_many(batch: Batch) -> None:
            batch.sql.execute(text(PAY), {"tx": [item.tx_id for item in batch]})
            for item in batch:
                item.commit_to_finish()
                item.done()

        @kit.step("n/thanks")
        def thanks(ctx: Any, data: Data) -> None:
            pass

        for name, is_told in (("send", True), ("pay", True), ("pay-many", False)):
            pipeline = Pipeline(f"point-{name}", expires_in_s=EXPIRES_S).step("n/hold")
            pipeline.step(f"n/{name}", final_from=is_told).step("n/thanks", dispatch="queue")
            kit.use(pipeline.build())

    def complaints_about(self, summary: Summary) -> Iterator[str]:
        tx_id, is_past = summary.tx_id, summary.no_return_at is not None
        with self.kit.connections.engine.connect() as sql:
            query = text("SELECT 1 FROM test_paid WHERE tx = :tx")
            is_paid = sql.execute(query, {"tx": tx_id}).first() is not None
        acted = is_paid or self.sent[tx_id] > 0
        if summary.status is Status.SUCCESS:
            if not (is_past and acted):
                yield f"{tx_id} is a success: past {is_past}, acted {acted}"
        elif is_past or acted or self.held[tx_id]:
            yield f"{tx_id} is {summary.status}: past {is_past}, acted {acted}, {self.held[tx_id]}"


@pytest.mark.timeout(600)
@pytest.mark.parametrize("name", ["send", "pay", "pay-many"])
def test_what_has_acted_succeeds_and_what_has_not_expires_whatever_crashes(
    kit: Kit, name: str
) -> None:
    world = PointWorld(kit)
    report = crash_sweep(
        kit,
        f"point-{name}",
        {},
        check=world.complaints_about,
        ends=["success", "expired"],
        kinds=["lost-answer", "crash"],
        times="first",
        jobs=MOVERS,
        together=1 if name == "send" else 2,
        where=lambda point: ALL or point.startswith(HARMFUL),
    )
    report.assert_clean()
    assert report.missed == []
    recorded = "hop.after_point" if name == "send" else "commit:effects.open:after"
    assert recorded in report.points
