"""How a command finds the servers: the environment first, else a running `datp up` here."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import parse_qs, urlsplit

from datp_tasks.errors import LocalStackError
from datp_tasks.local.private_files import read_text
from datp_tasks.local.run_file import (
    DEFAULT_DIRECTORY,
    KEYRING_FILE,
    KEYRING_VARIABLES,
    OF_A_STACK,
    PEPPER_FILE,
    POLICY_VARIABLE,
    STEPS_VARIABLE,
    read_run_file,
)
from datp_tasks.runtime.command_parts import CommandParts
from datp_tasks.settings import Settings

if TYPE_CHECKING:
    from datp_tasks.cli.reader import StatusReader
    from datp_tasks.model.actor import Actor
    from datp_tasks.pipelines.mapping_store import MappingStore
    from datp_tasks.pipelines.version_store import PipelineStore

DATABASE_VARIABLE = "DATP_DATABASE_URL"
URL_VARIABLES = ("DATP_REDIS_URL", DATABASE_VARIABLE)
ALL_URL_VARIABLES = (*URL_VARIABLES, "DATP_BROKER_URL")
#: This machine by its name, which is also written as one of two addresses.
LOOPBACK = "localhost"
#: Of a URL that names none.
USUAL_PORTS = {"redis": 6379, "rediss": 6379, "postgresql": 5432}


class Context(CommandParts):
    """What commands work with; nothing is imported or connected before it is used."""

    def __init__(
        self,
        settings: Settings,
        environment: Mapping[str, str] | None = None,
        steps_of_stack: Path | None = None,
    ) -> None:
        super().__init__(settings)
        #: What the settings were read from, beside the environment itself.
        self.environment = environment or {}
        #: Where the `datp up` runs whose step modules the settings name; None: DATP_STEPS does.
        self.steps_of_stack = steps_of_stack

    @cached_property
    def reader(self) -> StatusReader:
        """A client that only reads, and is imported in half the time."""
        from datp_tasks.cli.reader import StatusReader

        return StatusReader(self.record, lambda: self.live, lambda: self.client)

    @cached_property
    def actor(self) -> Actor:
        """Who runs the command, for the audit."""
        from datp_tasks.cli.acting import actor_of

        return actor_of(self)

    @property
    def pipelines(self) -> PipelineStore:
        """Whose changes are those of the one who runs the command."""
        return super().pipelines.acting(self.actor)

    @property
    def mappings(self) -> MappingStore:
        """The same for mappings."""
        from datp_tasks.pipelines.mapping_store import MappingStore

        return MappingStore(self.engine, self.pipelines)


#: What commands work with if `datp` was given --url.
_remote: Context | None = None


def ask_over_http(url: str | None, key: str | None) -> None:
    """From now on commands ask this API; None: the servers themselves."""
    global _remote
    if _remote is not None:
        _remote.close()
        _remote = None
    if url is not None:
        from datp_tasks.cli.remote_context import open_remote

        _remote = open_remote(url, key)


def is_remote() -> bool:
    return _remote is not None


def connect(directory: Path | None = None) -> Context:
    return _remote or _context(directory or Path(DEFAULT_DIRECTORY), URL_VARIABLES)


def connect_sql() -> Context:
    """For commands that use PostgreSQL alone: it does not matter which Redis is named."""
    return _remote or _context(Path(DEFAULT_DIRECTORY), (DATABASE_VARIABLE,))


def _context(directory: Path, used: Sequence[str]) -> Context:
    found = of_running_stack(directory)
    if found and _names_others(found, directory, used):
        # Its policy, pepper, key ring and steps are those of other servers.
        found = {}
    own = {
        name: text
        for name, text in os.environ.items()
        if name not in ALL_URL_VARIABLES or given_url(name)
    }
    given = {name: own[name] for name in found.keys() & own.keys()}
    is_from_stack = bool(found.get(STEPS_VARIABLE)) and STEPS_VARIABLE not in given
    return Context(
        Settings.from_env({**found, **own}),
        {**found, **given},
        directory.absolute() if is_from_stack else None,
    )


def given_url(name: str) -> str:
    """The address that the environment names; one of blanks is none."""
    return os.environ.get(name, "").strip()


def _names_others(found: Mapping[str, str], directory: Path, used: Sequence[str]) -> bool:
    """Whether the environment names other servers than those of the stack.

    One of another and one of the stack would be two halves that know nothing of each other.
    """
    given = {name: given_url(name) for name in used}
    others = [
        name for name in used if server_of(given[name] or found[name]) != server_of(found[name])
    ]
    of_stack = [name for name in used if name not in others]
    if others and of_stack:
        named = "a server of it" if given[of_stack[0]] else "none"
        raise LocalStackError(
            f"{others[0]} names another server than the `datp up` that runs in {directory}, and "
            f"{of_stack[0]} names {named}: set both for other servers, or neither for `datp up`."
        )
    return bool(others)


def server_of(url: str) -> tuple[str, ...]:
    """What a URL leads to, however it is spelled, for any user and with any options."""
    url = url.strip()
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        return (url,)
    scheme = parts.scheme.partition("+")[0]
    # Drivers take the query for the place before the rest of the URL.
    query = {name: ",".join(values) for name, values in parse_qs(parts.query).items()}
    host = query.get("host") or parts.hostname or ""
    named_port = query.get("port") or str(port or USUAL_PORTS.get(scheme))
    place = (scheme, LOOPBACK if host in ("127.0.0.1", "::1") else host, named_port)
    path = parts.path.strip("/")
    match scheme:
        case "redis" | "rediss":
            return *place, query.get("db") or path or "0"
        case "unix":
            return *place, path, query.get("db") or "0"
        case _:
            return *place, query.get("dbname") or path


def is_running(directory: Path | None = None) -> bool:
    """Whether there are servers to use: named by the environment, or run by `datp up`."""
    return all(given_url(name) for name in URL_VARIABLES) or bool(of_running_stack(directory))


def of_running_stack(directory: Path | None) -> dict[str, str]:
    """The variables of the `datp up` that runs there; none if there is none."""
    run = read_run_file(directory or Path(DEFAULT_DIRECTORY))
    if run is None:
        return {}
    ring = run.directory / KEYRING_FILE
    by_file, by_content = KEYRING_VARIABLES
    has_own = os.environ.get(by_content) or not ring.exists()
    return {
        **OF_A_STACK,
        POLICY_VARIABLE: run.policy_file,
        STEPS_VARIABLE: ",".join(run.steps),
        **({} if has_own else {by_file: str(ring.resolve())}),
        "DATP_REDIS_URL": run.redis_url,
        "DATP_BROKER_URL": run.broker_url,
        "DATP_DATABASE_URL": run.database_url,
        "DATP_KEY_PEPPER": read_text(run.directory / PEPPER_FILE) or "",
    }
