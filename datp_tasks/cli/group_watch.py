"""Node groups that appear while `datp up` runs: each gets a worker."""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Self

from datp_tasks.errors import DatpError
from datp_tasks.live.redis_errors import RedisError
from datp_tasks.local.stack import Stack
from datp_tasks.pipelines.catalogue import Catalogue
from datp_tasks.pipelines.version_store import PipelineStore
from datp_tasks.record.sql_errors import DBAPIError
from datp_tasks.runtime.command_parts import CommandParts
from datp_tasks.settings import Settings

LOOK_EVERY_S = 1.0

log = logging.getLogger("datp.cli")


@dataclass(frozen=True)
class Needs:
    """The node groups that pipelines in use need."""

    #: Those whose step types are all known here, the maintenance group first.
    served: list[str]
    #: The others, each with the step types that are not.
    missing: dict[str, list[str]]


def node_groups(
    pipelines: PipelineStore, catalogue: Catalogue, first: str, step_types: Collection[str]
) -> Needs:
    """A worker without a step type would take the bells of one that has it, and only hold them up.

    `first`, the maintenance group, is served in any case: the jobs run there.
    """
    needed: dict[str, set[str]] = {first: set()}
    for info in pipelines.list():
        try:
            definition = catalogue.current(info.name)
        except DatpError:
            continue
        for index, step in enumerate(definition.steps):
            needed.setdefault(definition.group_of(index), set()).add(step.type)
    missing = {
        group: sorted(types - set(step_types))
        for group, types in needed.items()
        if group != first and not types <= set(step_types)
    }
    return Needs([group for group in needed if group not in missing], missing)


class GroupWatch:
    """Asks in a thread of its own, so that a server that hangs does not stop the supervisor.

    Workers are started by `look` in the caller's thread, because Linux ties the life of a child to
    the thread that started it.
    """

    def __init__(
        self, stack: Stack, step_types: Collection[str], say: Callable[[str], None]
    ) -> None:
        self._stack = stack
        self._step_types = step_types
        self._say = say
        self._said: set[str] = set()
        self._settings = Settings.from_env({**os.environ, **stack.urls.as_environment()})
        self._found = Needs([], {})
        self._ends = threading.Event()
        self._thread = threading.Thread(target=self._ask, name="datp-groups", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ends.set()

    def look(self) -> None:
        """Start a worker for each group that has none, or say why not; never waits."""
        found = self._found
        self._stack.add_workers(found.served)
        for group, types in found.missing.items():
            if group not in self._said:
                self._said.add(group)
                self._say(
                    f"node group {group} gets no worker here: DATP_STEPS names no module with "
                    f"{', '.join(types)}"
                )

    def _ask(self) -> None:
        with CommandParts(self._settings) as parts:
            while not self._ends.wait(LOOK_EVERY_S):
                try:
                    self._found = node_groups(
                        parts.pipelines,
                        parts.catalogue,
                        self._settings.maintenance_group,
                        self._step_types,
                    )
                except (DatpError, DBAPIError, RedisError) as error:
                    log.info("the node groups are not known: %s", error)
