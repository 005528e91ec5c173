"""report_progress.lua: what a step tells the client meanwhile."""

from __future__ import annotations

from tests.support.live_states import Stage


def test_progress_is_stored_and_told(stage: Stage) -> None:
    claim = stage.claimed()
    report = '{"done":0.10,"of":9007199254740993}'
    with stage.news() as news:
        assert stage.live.report_progress(claim.tx_id, claim.fence, report) is None
        assert news() == f"progress:{claim.tx_id}:running"
    assert stage.fields(claim.tx_id)["progress"] == report


def test_a_refused_report_is_not_told(stage: Stage) -> None:
    claim = stage.claimed()
    with stage.news() as news:
        stage.live.report_progress(claim.tx_id, claim.fence - 1, "{}")
        stage.live.report_progress(claim.tx_id, claim.fence, "{}")
        assert news() == f"progress:{claim.tx_id}:running"
        assert news(timeout_s=0) is None
