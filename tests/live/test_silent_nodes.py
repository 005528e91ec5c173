"""beat.lua and silent_nodes.lua: which nodes have stopped."""

from __future__ import annotations

from tests.support.live_states import NODE, OTHER_NODE, Stage


def test_a_silent_node_is_given_up_after_a_second_look(stage: Stage) -> None:
    stage.live.beat(NODE)
    stage.clock.advance(seconds=stage.settings.node_stale_ms / 1_000)
    assert stage.live.silent_nodes() == []
    stage.clock.advance(seconds=stage.settings.node_grace_ms / 1_000 - 0.001)
    assert stage.live.silent_nodes() == []
    stage.clock.advance(seconds=0.001)
    assert stage.live.silent_nodes() == [NODE]


def test_an_outage_of_redis_does_not_make_every_node_look_dead(stage: Stage) -> None:
    for node in (NODE, OTHER_NODE):
        stage.live.beat(node)
    stage.clock.advance(days=1)
    assert stage.live.silent_nodes() == []
    stage.live.beat(NODE)
    stage.clock.advance(seconds=stage.settings.node_grace_ms / 1_000)
    assert stage.live.silent_nodes() == [OTHER_NODE]


def test_noticing_a_silent_node_twice_does_not_start_its_grace_again(stage: Stage) -> None:
    stage.live.beat(NODE)
    stage.clock.advance(days=1)
    for _ in range(4):
        stage.live.silent_nodes()
        stage.clock.advance(seconds=stage.settings.node_grace_ms / 4_000)
    assert stage.live.silent_nodes() == [NODE]


def test_a_node_that_beats_is_not_silent(stage: Stage) -> None:
    for _ in range(5):
        stage.live.beat(NODE)
        stage.clock.advance(seconds=stage.settings.node_stale_ms / 1_000 - 0.001)
        assert stage.live.silent_nodes() == []


def test_a_forgotten_node_is_not_looked_for(stage: Stage) -> None:
    stage.live.beat(NODE)
    stage.clock.advance(days=1)
    stage.live.silent_nodes()
    stage.live.forget_node(NODE)
    stage.clock.advance(days=1)
    assert stage.live.silent_nodes() == []
