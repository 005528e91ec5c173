"""A checkout of its own for the pages: folder, virtualenv and Makefile, but empty data."""

from __future__ import annotations

import shutil
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from datp_tasks.engine.registry import discover, registry
from datp_tasks.local.stack import DEFAULT_DIRECTORY, Stack
from tests.docs.docs_blocks import ROOT
from tests.docs.docs_terminal import Terminal

MEMORY = Path("/dev/shm")
ROOM_BYTES = 2_000_000_000
OF_A_CHECKOUT = ("Makefile", "requirements.lock", "pyproject.toml")
#: In the place of Python itself: `make` must find nothing to install, and cannot if it tries.
NO_PYTHON = "#!/bin/sh\necho 'nothing is installed in the checkout of the pages' >&2\nexit 1\n"


@pytest.fixture(scope="module")
def checkout() -> Iterator[Path]:
    """What `make install` leaves behind, in a folder that every user can pass through.

    The files are copies and the virtualenv holds the commands only: whatever happens to the
    checkout meanwhile, nothing here can reach the virtualenv that runs the tests.
    """
    has_room = MEMORY.is_dir() and shutil.disk_usage(MEMORY).free > ROOM_BYTES
    folder = Path(tempfile.mkdtemp(prefix="datp-docs-", dir=MEMORY if has_room else None))
    folder.chmod(0o711)
    for name in OF_A_CHECKOUT:
        shutil.copyfile(ROOT / name, folder / name)
    commands = folder / ".venv" / "bin"
    commands.mkdir(parents=True)
    (commands / "datp").symlink_to(Path(sys.executable).parent / "datp")
    (commands / "python").write_text(NO_PYTHON)
    (commands / "python").chmod(0o755)
    # Last, so that it is newer than everything it depends on.
    (folder / ".venv" / ".installed").touch()
    yield folder
    Stack(folder / DEFAULT_DIRECTORY).destroy()
    shutil.rmtree(folder)


@pytest.fixture(scope="module")
def terminal(checkout: Path) -> Iterator[Terminal]:
    terminal = Terminal(checkout)
    yield terminal
    terminal.close()


@pytest.fixture
def own_step_types() -> Iterator[None]:
    """Step types that a page declares are forgotten after it."""
    discover(())
    before = dict(registry._types)
    yield
    registry._types.clear()
    registry._types.update(before)
