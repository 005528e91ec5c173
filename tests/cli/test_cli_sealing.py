"""`datp keyring`, `datp secrets` and `datp unmask`, as a person uses them."""

from __future__ import annotations

import json
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from datp_tasks import Pipeline
from datp_tasks.cli import app, sealing
from datp_tasks.cli.command_context import Context
from datp_tasks.errors import SealBroken, SettingsError
from datp_tasks.local.private_files import sole_writer
from datp_tasks.seals.keyring import read
from datp_tasks.testing import Kit
from tests.support.search_everywhere import places_with

Run = Callable[..., Result]


@pytest.fixture
def ring_file(tmp_path: Path) -> Path:
    return tmp_path / "ring.json"


@pytest.fixture
def datp_command(datp: Kit, ring_file: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """The commands against the servers of the kit, with the ring of the file."""

    def connect() -> Context:
        return Context(replace(datp.settings, keyring="", keyring_file=str(ring_file)))

    for name in ("connect", "connect_sql"):
        monkeypatch.setattr(sealing, name, connect)

    def run(*argv: str, given: str | None = None) -> Result:
        return CliRunner().invoke(app, list(argv), input=given, catch_exceptions=False)

    return run


def test_a_ring_is_made_changed_and_its_old_key_dropped(
    datp_command: Run, ring_file: Path, datp: Kit
) -> None:
    assert datp_command("keyring", "make", str(ring_file)).exit_code == 0
    assert ring_file.stat().st_mode & 0o777 == 0o600
    with pytest.raises(SettingsError, match="exists"):
        datp_command("keyring", "make", str(ring_file))
    assert datp_command("secrets", "set", "BANK", given="tok-zanzibar\n").exit_code == 0
    datp_command("keyring", "add", str(ring_file))
    datp_command("keyring", "activate", str(ring_file), "k2")
    with pytest.raises(SealBroken, match="1 rows of sealed_secret"):
        datp_command("keyring", "drop", str(ring_file), "k1")
    assert "1 rows of sealed_secret" in datp_command("keyring", "rotate").output
    listed = json.loads(datp_command("keyring", "list", "--json").output)
    assert [(each["key"], each["active"], each["rows"]) for each in listed] == [
        ("k1", False, 0),
        ("k2", True, 1),
    ]
    datp_command("keyring", "drop", str(ring_file), "k1")
    assert [*read(ring_file).keys] == ["k2"]
    shown = datp_command("secrets", "list").output
    assert "BANK" in shown
    assert "zanzibar" not in shown
    assert places_with(datp, "zanzibar") == []
    assert datp_command("secrets", "rotate", "BANK", given="another\n").exit_code == 0
    assert datp_command("secrets", "delete", "BANK").exit_code == 0
    assert json.loads(datp_command("secrets", "list", "--json").output) == []


def test_two_who_change_a_ring_at_once_lose_no_key(datp_command: Run, ring_file: Path) -> None:
    """Each was told the id of a key, and may have given it to processes."""
    datp_command("keyring", "make", str(ring_file))
    with pytest.raises(SettingsError, match="there is no folder"):
        datp_command("keyring", "make", str(ring_file.parent / "none" / "ring.json"))
    # The same file by another way.
    linked = ring_file.parent / "elsewhere" / "ring.json"
    linked.parent.mkdir()
    linked.symlink_to(ring_file)
    with ThreadPoolExecutor(2) as pool, sole_writer(ring_file):
        adding = [pool.submit(sealing.add, file) for file in (ring_file, linked)]
        assert wait(adding, timeout=0.05).done == set()
    assert [each.result() for each in adding] == [None, None]
    assert [*read(ring_file).keys] == ["k1", "k2", "k3"]
    assert linked.is_symlink()


def test_unmask_shows_a_sealed_transaction_and_needs_a_reason(
    datp_command: Run, ring_file: Path, datp: Kit
) -> None:
    @datp.step("t/pass")
    def passed(ctx: Any, data: dict[str, Any]) -> None:
        return None

    ring_file.write_text(datp.settings.keyring)
    ring_file.chmod(0o600)
    datp.use(Pipeline("p", sealed=True).step("t/pass").build())
    tx_id = datp.run("p", {"name": "zanzibar"}).tx_id
    assert datp_command("unmask", tx_id).exit_code == 2
    shown = json.loads(datp_command("unmask", tx_id, "--reason", "ticket 4711").output)
    assert shown["input"] == {"name": "zanzibar"}
