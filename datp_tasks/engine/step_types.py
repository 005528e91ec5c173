"""Which step types there are: those of live nodes, and those that come with the package."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from datp_tasks.engine.registry import discover, registry
from datp_tasks.errors import StepTypeUnknown
from datp_tasks.live.nodes import described_step_types, live_nodes
from datp_tasks.live.store import LiveStore

BUILTIN = "datp_tasks.engine.builtin."


@dataclass(frozen=True, slots=True)
class StepTypeInfo:
    name: str
    #: As its node said; of a node of an earlier release, only the name is known.
    about: Mapping[str, Any]
    #: Node groups whose live nodes offer it; none for a shipped one while no worker runs.
    groups: tuple[str, ...]
    nodes: int

    @property
    def description(self) -> str:
        return str(self.about.get("description", ""))

    def to_json(self) -> dict[str, Any]:
        return {**self.about, "name": self.name, "groups": list(self.groups), "nodes": self.nodes}


def list_step_types(live: LiveStore) -> list[StepTypeInfo]:
    """By name."""
    discover(())
    shipped = {
        name: registry.get(name).described()
        for name in registry.names()
        if registry.get(name).function.__module__.startswith(BUILTIN)
    }
    groups: dict[str, set[str]] = {name: set() for name in shipped}
    nodes: dict[str, set[str]] = {}
    for node in live_nodes(live.redis, live.keys):
        for name in node.step_types:
            groups.setdefault(name, set()).add(node.group)
            nodes.setdefault(name, set()).add(node.name)
    said = {**shipped, **described_step_types(live.redis, live.keys)}
    return [
        StepTypeInfo(name, said.get(name, {}), tuple(sorted(of)), len(nodes.get(name, ())))
        for name, of in sorted(groups.items())
    ]


def show_step_type(live: LiveStore, name: str) -> StepTypeInfo:
    for each in list_step_types(live):
        if each.name == name:
            return each
    raise StepTypeUnknown(f"no live node offers the step type {name[:100]!r}")
