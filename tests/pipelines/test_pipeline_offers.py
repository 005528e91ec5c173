"""Which step types the live nodes offer."""

from __future__ import annotations

import json
from collections.abc import Callable

from redis import Redis

from datp_tasks.live.keys import Keys
from datp_tasks.live.nodes import registered_key
from datp_tasks.model.pipeline import PipelineDefinition
from datp_tasks.pipelines.step_availability import offered_step_types, unoffered

Define = Callable[..., PipelineDefinition]


def test_without_a_live_node_nothing_can_be_said(redis: Redis, keys: Keys, define: Define) -> None:
    assert offered_step_types(redis, keys) is None
    assert unoffered([define()], None) == []


def test_the_offers_of_all_live_nodes_count_together(redis: Redis, keys: Keys) -> None:
    def register(group: str, node: str, record: str) -> None:
        redis.set(keys.node(group, node), record)
        redis.zadd(registered_key(keys), {f"{group}/{node}": 1})

    register("master", "n1", json.dumps({"stepTypes": ["a", "b"]}))
    register("ledger", "n2", json.dumps({"stepTypes": ["b", "c"]}))
    register("ledger", "n3", json.dumps({}))
    register("ledger", "n4", "not JSON")
    register("ledger", "n5", json.dumps({"stepTypes": "abc"}))
    register("ledger", "gone", json.dumps({"stepTypes": ["d"]}))
    redis.delete(keys.node("ledger", "gone"))
    assert offered_step_types(redis, keys) == {"a", "b", "c"}


def test_a_step_that_no_node_offers_is_named(define: Define) -> None:
    assert unoffered([define("a"), define("b")], {"bank/reserve"}) == [
        "a: steps[1] (bank/settle): no live node offers this step type",
        "b: steps[1] (bank/settle): no live node offers this step type",
    ]
    assert len(unoffered([define()], set())) == 2
