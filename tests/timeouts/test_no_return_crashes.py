"""A worker dies where a point of no return was recorded, and its step was not called yet."""

from __future__ import annotations

from typing import Any

from datp_tasks import Pipeline, failpoints
from datp_tasks.model.status import Status
from datp_tasks.testing import Kit
from tests.timeouts.history import history

Data = dict[str, Any]


def test_a_crash_at_a_point_of_no_return_undoes_nothing_and_does_nothing_twice(datp: Kit) -> None:
    """Another system decides, it answers, and what follows is final: each is recorded first."""
    said: list[str] = []

    @datp.step("p/hold")
    def hold(ctx: Any, data: Data) -> None:
        said.append("hold")

    @hold.rollback
    def release(ctx: Any, data: Data, output: Data | None) -> None:
        said.append("release")

    for name in ("forward", "answer", "pay"):
        datp.step(f"p/{name}")(lambda ctx, data, name=name: said.append(name))
    pipeline = Pipeline("point").step("p/hold").step("p/forward", forwards=True)
    datp.use(pipeline.step("p/answer").step("p/pay", final_from=True).build())
    records = []
    for nth in (1, 2, 3):
        said.clear()
        failpoints.arm("hop.after_point", "crash", nth=nth)
        tx_id = datp.submit("point", {}, expires_in_s=86_400)
        assert not datp.status(tx_id).is_final
        datp.recover()
        summary = datp.finish(tx_id)
        assert (summary.status, said) == (Status.SUCCESS, ["hold", "forward", "answer", "pay"])
        assert summary.no_return_at is not None
        records.append(history(datp, tx_id))
    # A repeated try of what was recorded is not told again.
    told = ["queued", "RESERVED_FORWARDED", "RESERVED", "RECEIVED_FULFIL", "success"]
    assert records == [told] * 3
