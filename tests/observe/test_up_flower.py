"""Flower as `datp up` starts it: on loopback, behind a password that nobody else can read."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import httpx
import pytest

from datp_tasks.cli.flower import PASSWORD_FILE, Flower, start_flower
from datp_tasks.local.processes import command_line_of
from datp_tasks.local.stack import Stack
from datp_tasks.testing.servers import Servers
from tests.support.eventually import eventually


@pytest.fixture
def stack(datp_servers: Servers, tmp_path: Path) -> Iterator[Stack]:
    """A stack whose servers run already."""
    with Stack(
        tmp_path / "data",
        redis_url=datp_servers.redis_url,
        database_url=datp_servers.database_url,
    ) as stack:
        stack.start_servers()
        yield stack


def listens(flower: Flower) -> bool:
    try:
        return httpx.get(flower.url, timeout=5).status_code == 401
    except httpx.TransportError:
        return False


@pytest.mark.acceptance
def test_flower_asks_for_the_password_that_is_kept_with_the_data(stack: Stack) -> None:
    flower = start_flower(stack)
    eventually(lambda: listens(flower), within_s=30, what="Flower")
    password = flower.password_file.read_text().strip()
    given = (flower.user, password)
    assert httpx.get(f"{flower.url}/api/workers", auth=given, timeout=10).status_code == 200
    assert httpx.get(f"{flower.url}/api/workers", timeout=10).status_code == 401
    kept = stack.directory / PASSWORD_FILE
    assert (kept.read_text().strip(), kept.stat().st_mode & 0o777) == (password, 0o600)
    [child] = [child for child in stack.children if child.name == "flower"]
    assert child.pid is not None
    assert password not in command_line_of(child.pid)
    assert "--address=127.0.0.1" in command_line_of(child.pid)
    assert urlsplit(flower.url).hostname == "127.0.0.1"
    assert password not in repr(flower)
