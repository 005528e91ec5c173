"""Jobs and lists read the few fields that they need, and not the state, which may be large."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from datp_tasks.live.store import LiveStore
from datp_tasks.operator.selection import Where
from datp_tasks.testing import Kit
from tests.support.archive_world import World


def test_jobs_that_look_at_many_transactions_read_only_what_they_need(
    datp: Kit, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    running = world.crashed("quick", "hop.after_step")
    queued = world.queued("quick")
    expiring = world.crashed("hop", "hop.after_step")
    world.sql(
        "UPDATE tx_state_change SET expires_at = created_at + interval '30 s' WHERE tx_id = :tx",
        tx=expiring,
    )
    world.sql(
        "UPDATE tx_summary SET expires_at = created_at + interval '30 s' WHERE tx_id = :tx",
        tx=expiring,
    )
    datp.clock.advance(seconds=31)
    datp.lose_bells()
    whole: list[str] = []
    fields_many = LiveStore.fields_many

    def counted(self: LiveStore, tx_ids: Sequence[str]) -> list[dict[str, str]]:
        whole.extend(tx_ids)
        return fields_many(self, tx_ids)

    monkeypatch.setattr(LiveStore, "fields_many", counted)
    assert datp.run_job("timeout_handler").asked == 1
    datp.run_job("watcher")
    datp.run_job("reaper")
    datp.clock.advance(seconds=10)
    datp.process.heartbeat.beat_once()
    assert datp.run_job("reaper").taken == 2
    assert datp.run_job("reconciler").rung
    assert whole == []
    monkeypatch.undo()
    datp.lose_bells(False)
    for tx_id in (running, queued, expiring):
        assert world.ends(tx_id)


def test_looking_at_many_reads_only_what_is_shown(datp: Kit, world: World) -> None:
    in_doubt = world.crashed("pay", "hop.after_step", nth=2)
    datp.recover()
    asleep = datp.submit("wait", {})
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(LiveStore, "fields_many", _refused)
        assert [each.tx_id for each in datp.operator.in_doubt()] == [in_doubt]
        assert datp.operator.in_doubt()[0].why
        found = datp.client.status_many([in_doubt, asleep])
        assert [each and str(each.status) for each in found] == ["in-doubt", "sleeping"]
        chosen = [each.tx_id for each in datp.operator.choose(Where(group="master"))]
        assert sorted(chosen) == sorted([in_doubt, asleep])


def _refused(self: LiveStore, tx_ids: Sequence[str]) -> Any:
    raise AssertionError(f"all fields of {tx_ids} are read")
