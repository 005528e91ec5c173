"""Transactions through pipelines, eagerly, on real servers."""

from __future__ import annotations

from typing import Any

from datp_tasks import Call, Fail, Pipeline, Sleep
from datp_tasks.model.status import Status
from datp_tasks.testing import Kit


def test_a_transaction_runs_through_its_steps(datp: Kit) -> None:
    @datp.step("t/add")
    def add(ctx: Any, data: dict[str, Any]) -> dict[str, Any]:
        return {"n": data["n"] + ctx.params.get("by", 1)}

    datp.use(Pipeline("p").step("t/add").step("t/add", params={"by": 10}).step("t/add").build())
    summary = datp.run("p", {"n": 1})
    assert summary.status is Status.SUCCESS, summary
    assert summary.output == {"n": 13}
