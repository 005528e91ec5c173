"""Which step types the live nodes offer, and which steps of a pipeline no node could run."""

from __future__ import annotations

from collections.abc import Iterable

from datp_tasks.live.connect import Redis
from datp_tasks.live.keys import Keys
from datp_tasks.live.nodes import live_nodes
from datp_tasks.model.pipeline import PipelineDefinition


def offered_step_types(redis: Redis, keys: Keys) -> set[str] | None:
    """The step types of all live nodes together; None if no node is alive."""
    nodes = live_nodes(redis, keys)
    return {name for node in nodes for name in node.step_types} if nodes else None


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
