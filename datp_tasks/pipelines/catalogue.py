"""What clients and workers ask for: the version in use, or the version a transaction pins.

Answers come from memory, else from Redis, else from SQL. Which version is in use is asked again
after `reload_s`; a version itself never changes, so it is kept as long as there is room.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from contextlib import suppress

from datp_tasks.errors import PipelineDisabled, PipelineUnknown
from datp_tasks.live.connect import Redis
from datp_tasks.live.pipeline_cache import Head, PipelineCache
from datp_tasks.live.redis_errors import RedisError
from datp_tasks.model.pipeline import PipelineDefinition
from datp_tasks.model.pipeline_rules import PIPELINE_NAME
from datp_tasks.pipelines.records import sealed_child
from datp_tasks.pipelines.version_store import PipelineStore

log = logging.getLogger(__name__)

VERSIONS_MAX = 1_000


class Catalogue:
    """One per process; threads may share it."""

    def __init__(
        self,
        redis: Redis,
        store: PipelineStore,
        reload_s: float,
        *,
        versions_max: int = VERSIONS_MAX,
        monotonic_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self._store = store
        self._cache = PipelineCache(redis, store.keys)
        self._reload_s = reload_s
        self._versions_max = versions_max
        self._monotonic_s = monotonic_s
        #: name -> (asked again after, definition). Holds only pipelines that exist.
        self._in_use: dict[str, tuple[float, PipelineDefinition]] = {}
        self._versions: OrderedDict[tuple[str, str], PipelineDefinition] = OrderedDict()
        self._versions_lock = threading.Lock()
        #: The one that was asked for last: transactions of a vector mostly pin the same.
        self._last: tuple[tuple[str, str], PipelineDefinition | None] = (("", ""), None)

    def current(self, name: str) -> PipelineDefinition:
        """The version in use, for a new transaction."""
        now_s = self._monotonic_s()
        # Reading one entry of a dict needs no lock, and two that reload at once do no harm.
        known = self._in_use.get(name)
        if known is not None and now_s < known[0]:
            return known[1]
        self._in_use.pop(name, None)
        definition = self.version(name, self._ask_which(name))
        self._in_use[name] = (now_s + self._reload_s, definition)
        return definition

    def seals(self, definition: PipelineDefinition) -> bool:
        """Whether its transactions rest sealed: it says so, or a pipeline that it may call does.

        A call goes on with the same transaction, so what a sealed child is given and returns would
        else rest in plain text.
        """
        if definition.sealed or not definition.calls:
            return definition.sealed
        return sealed_child(definition, self.current) is not None

    def version(self, name: str, version: str) -> PipelineDefinition:
        """A version by its whole name, for a transaction that pins it."""
        key = (name, version)
        last, definition = self._last
        if last == key and definition is not None:
            return definition
        with self._versions_lock:
            known = self._versions.get(key)
            if known is not None:
                self._versions.move_to_end(key)
                self._last = (key, known)
                return known
        definition = self._load(name, version)
        with self._versions_lock:
            self._versions[key] = definition
            self._last = (key, definition)
            while len(self._versions) > self._versions_max:
                self._versions.popitem(last=False)
        return definition

    def _ask_which(self, name: str) -> str:
        head = None
        if isinstance(name, str) and PIPELINE_NAME.fullmatch(name):
            head = self._head(name)
        if head is None:
            raise PipelineUnknown(
                f"There is no pipeline {name!r}. `datp pipelines list` shows what there is."
            )
        if head.disabled:
            raise PipelineDisabled(
                f"Pipeline {name} is disabled. `datp pipelines use {name} VERSION` enables it."
            )
        if head.in_use is None:
            raise PipelineDisabled(
                f"Pipeline {name} has no version in use yet. `datp pipelines use {name} VERSION` "
                f"puts one into use; `datp pipelines show {name}` lists them."
            )
        return head.in_use

    def _head(self, name: str) -> Head | None:
        try:
            # Redis may have been emptied, so only SQL can say that there is no such pipeline.
            return self._cache.head(name) or self._store.refresh(name)
        except RedisError as error:
            log.warning(
                "Redis is unavailable, so SQL tells which version of %s is in use: %s", name, error
            )
            return self._store.head(name)

    def _load(self, name: str, version: str) -> PipelineDefinition:
        with suppress(RedisError):
            text = self._cache.text(name, version)
            if text is not None:
                return PipelineDefinition.from_json(text)
        definition = self._store.load(name, version)
        if definition.version != version:
            # The store also takes the start of a version, which may be unique today only.
            raise PipelineUnknown(f"Pipeline {name} has no version {version!r}.")
        with suppress(RedisError):
            self._cache.put_text(name, definition.version, definition.to_json())
        return definition
