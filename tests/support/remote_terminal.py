"""A person at a terminal that knows neither PostgreSQL nor Redis, only a URL and a key."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from datp_tasks.cli import app
from datp_tasks.cli.command_context import ask_over_http


class RemoteTerminal:
    def __init__(self, url: str, key: str) -> None:
        self._options = ["--url", url, "--key", key]

    def run(self, *words: str, typed: str | None = None) -> Result:
        given = [*self._options, *words]
        try:
            return CliRunner().invoke(app, given, input=typed, catch_exceptions=True)
        finally:
            # The next command of this process may be one of another test, for its own servers.
            ask_over_http(None, None)

    def __call__(self, *words: str, typed: str | None = None) -> str:
        result = self.run(*words, typed=typed)
        if result.exception and not isinstance(result.exception, SystemExit):
            raise result.exception
        return result.output

    def json(self, *words: str) -> Any:
        return json.loads(self(*words, "--json"))


@contextmanager
def no_servers(monkeypatch: pytest.MonkeyPatch, folder: Path) -> Iterator[None]:
    """No server is named, and none runs in this folder; the next command asks no API."""
    monkeypatch.chdir(folder)
    for name in ("DATP_DATABASE_URL", "DATP_REDIS_URL", "DATP_BROKER_URL", "DATP_KEY"):
        monkeypatch.delenv(name, raising=False)
    yield
    ask_over_http(None, None)
