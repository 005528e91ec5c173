"""Which step types the live nodes offer, and which steps of a pipeline nobody could run."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

import redis

from datp_tasks.live.keys import Keys
from datp_tasks.model.pipeline import PipelineDefinition
from datp_tasks.pipelines.cache import as_text

SCAN_COUNT = 1_000


def offered_step_types(redis: redis.Redis, keys: Keys) -> set[str] | None:
    """The step types of all live nodes together; None if no node is alive."""
    offered: set[str] | None = None
    for key in redis.scan_iter(match=keys.node("*", "*"), count=SCAN_COUNT):
        # One by one, because on a cluster the nodes' keys lie on different servers.
        node = _node(as_text(redis.get(key)))
        if node is not None:
            names = node.get("stepTypes")
            offered = (offered or set()) | {
                name for name in (names if isinstance(names, list) else ()) if isinstance(name, str)
            }
    return offered


def unoffered(definitions: Iterable[PipelineDefinition], offered: set[str] | None) -> list[str]:
    """A warning for each step that no live node offers; none if no node is alive to ask."""
    if offered is None:
        return []
    return [
        f"{definition.name}: steps[{index}] ({step.type}): no live node offers this step type"
        for definition in definitions
        for index, step in enumerate(definition.steps)
        if step.type not in offered
    ]


def _node(text: str | None) -> dict[str, Any] | None:
    """A node's entry; None if it has just gone or is not ours."""
    try:
        found = json.loads(text or "null")
    except ValueError:
        return None
    return found if isinstance(found, dict) else None
