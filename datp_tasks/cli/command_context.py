"""How a command finds the servers: the environment first, else a running `datp up` here."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from datp_tasks.local.private_files import read_text
from datp_tasks.local.run_file import (
    DEFAULT_DIRECTORY,
    KEYRING_FILE,
    KEYRING_VARIABLES,
    OF_A_STACK,
    PEPPER_FILE,
    read_run_file,
)
from datp_tasks.settings import Settings

if TYPE_CHECKING:
    from datp_tasks.cli.reader import StatusReader
    from datp_tasks.client.client import Client
    from datp_tasks.live.connect import Redis
    from datp_tasks.live.keys import Keys
    from datp_tasks.model.actor import Actor
    from datp_tasks.operator.operator import Operator
    from datp_tasks.pipelines.version_store import PipelineStore
    from datp_tasks.record.database import Engine
    from datp_tasks.runtime.container import Container

URL_VARIABLES = ("DATP_REDIS_URL", "DATP_DATABASE_URL")


@dataclass(frozen=True)
class Context:
    """What commands work with; nothing is imported or connected before it is used."""

    settings: Settings
    #: What the settings were read from, beside the environment itself.
    environment: Mapping[str, str] = field(default_factory=dict)

    @cached_property
    def connections(self) -> Container:
        from datp_tasks.runtime.container import Container

        return Container.open(self.settings)

    @cached_property
    def client(self) -> Client:
        from datp_tasks.runtime.clients import make_client

        # A person at a terminal is not the owner: `datp unmask` shows what is sealed.
        return make_client(self.connections, opens=False)

    @cached_property
    def operator(self) -> Operator:
        from datp_tasks.runtime.clients import make_operator

        return make_operator(self.connections)

    @cached_property
    def reader(self) -> StatusReader:
        """A client that only reads, and is imported in half the time."""
        from datp_tasks.cli.reader import StatusReader

        return StatusReader(self.settings, lambda: self.client)

    @cached_property
    def actor(self) -> Actor:
        """Who runs the command, for the audit."""
        from datp_tasks.cli.acting import actor_of

        return actor_of(self)

    @property
    def pipelines(self) -> PipelineStore:
        return self.connections.pipelines.acting(self.actor)

    @property
    def redis(self) -> Redis:
        return self.connections.redis

    @property
    def engine(self) -> Engine:
        return self.connections.engine

    @property
    def keys(self) -> Keys:
        return self.connections.live.keys


def connect(directory: Path | None = None) -> Context:
    found = {**_of_running_stack(directory)}
    given = {name: os.environ[name] for name in found.keys() & os.environ.keys()}
    return Context(Settings.from_env({**found, **os.environ}), {**found, **given})


def is_running(directory: Path | None = None) -> bool:
    """Whether there are servers to use: named by the environment, or run by `datp up`."""
    return all(os.environ.get(name) for name in URL_VARIABLES) or bool(_of_running_stack(directory))


def _of_running_stack(directory: Path | None) -> dict[str, str]:
    run = read_run_file(directory or Path(DEFAULT_DIRECTORY))
    if run is None:
        return {}
    ring = run.directory / KEYRING_FILE
    by_file, by_content = KEYRING_VARIABLES
    has_own = os.environ.get(by_content) or not ring.exists()
    return {
        **OF_A_STACK,
        **({} if has_own else {by_file: str(ring.resolve())}),
        "DATP_REDIS_URL": run.redis_url,
        "DATP_BROKER_URL": run.broker_url,
        "DATP_DATABASE_URL": run.database_url,
        "DATP_KEY_PEPPER": read_text(run.directory / PEPPER_FILE) or "",
    }
