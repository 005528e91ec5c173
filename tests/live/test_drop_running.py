"""drop_running.lua: a node is cleared of claims that it does not run."""

from __future__ import annotations

from tests.support.live_states import NODE, OTHER_NODE, Stage


def test_a_node_is_cleared_of_what_it_does_not_run(stage: Stage) -> None:
    claim, bell = stage.handed_over()
    stage.claimed(bell, node=OTHER_NODE)
    left = stage.gone().tx_id
    for tx_id in (claim.tx_id, left):
        stage.redis.sadd(stage.live.keys.of_tx(tx_id, f"runningS:{NODE}"), tx_id)
    stage.live.drop_running(NODE, [claim.tx_id, left])
    assert stage.live.running_on(NODE) == []
    assert stage.live.running_on(OTHER_NODE) == [claim.tx_id]


def test_a_node_is_not_cleared_of_what_it_claimed_since_the_reaper_looked(stage: Stage) -> None:
    claim = stage.claimed()
    with stage.nothing_changes():
        stage.live.drop_running(NODE, [claim.tx_id])
