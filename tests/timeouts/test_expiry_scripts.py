"""claim.lua and expiry: what has expired is given, but nothing of it is opened."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest

from datp_tasks.live.invariants import check_all
from datp_tasks.live.live_types import Bell, Claimed
from datp_tasks.model.stop_request import StopRequest
from datp_tasks.testing.servers import Servers
from tests.support.live_states import NODE, OPENS, STEP, Stage


@pytest.fixture
def stage(datp_servers: Servers) -> Iterator[Stage]:
    stage = Stage(datp_servers)
    yield stage
    assert check_all(stage.live) == []
    stage.close()


def expiring(stage: Stage, in_ms: int) -> Bell:
    new = replace(stage.new(), expires_at_ms=stage.now_ms + in_ms)
    [bell] = stage.live.create_many([new])
    assert bell is not None
    return bell


def claim(stage: Stage, bell: Bell) -> Claimed:
    pair = (bell.tx_id, bell.sequence)
    [claimed] = stage.live.claim_many([pair], NODE, step_type=STEP, begin=OPENS)
    assert isinstance(claimed, Claimed)
    return claimed


@pytest.mark.parametrize(("in_ms", "opened"), [(1, True), (0, False), (-1, False)])
def test_a_claim_opens_a_step_only_before_the_expiry(
    stage: Stage, in_ms: int, opened: bool
) -> None:
    claimed = claim(stage, expiring(stage, in_ms))
    assert claimed.opened is opened
    assert ("begun" in stage.fields(claimed.tx_id)) is opened
    assert claimed.fields["expiresAt"] == str(stage.now_ms + in_ms)


def test_one_that_slept_past_its_expiry_without_having_begun_can_be_seized(stage: Stage) -> None:
    claimed = claim(stage, expiring(stage, 0))
    stage.sleeping(claimed)
    [seized] = stage.live.stop_many(
        [(claimed.tx_id, StopRequest.expiry("x"))], NODE, only_seize=True
    )
    assert isinstance(seized, Claimed)
