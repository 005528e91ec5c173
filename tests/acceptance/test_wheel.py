"""A newcomer's first hour with the wheel: an empty folder, own steps, an own pipeline, a test.

The virtualenv is fresh and gets the wheel; the libraries that the wheel needs are lent to it by
the virtualenv of the tests, because a test downloads nothing.
"""

from __future__ import annotations

import os
import re
import select
import shutil
import signal
import subprocess
import sys
import sysconfig
import tempfile
import time
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.docs.docs_blocks import ROOT, blocks

pytestmark = pytest.mark.acceptance

UP_S = 60.0
COMMAND_S = 60.0
#: Their source on the page of the quickstart is what the newcomer writes.
FILES = ("my_steps.py", "order.yaml", "test_my_steps.py")
NEEDED = ("celeryconfig.py", "datp_tasks/_migrations/env.py", "datp_tasks/live/lua/claim.lua")


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True, timeout=COMMAND_S)
    (built,) = folder.glob("*.whl")
    return built


@pytest.fixture(scope="module")
def environment(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The variables of a shell in which the fresh virtualenv is active."""
    venv = tmp_path_factory.mktemp("fresh") / "venv"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(venv)], check=True)
    python = venv / "bin" / "python"
    install = ("install", "--quiet", "--no-deps", "--no-index", str(wheel))
    pip = [sys.executable, "-m", "pip", "--python", str(python), "--no-cache-dir"]
    subprocess.run([*pip, *install], check=True, capture_output=True, timeout=COMMAND_S)
    (packages,) = (venv / "lib").glob("python*/site-packages")
    # A plain path, so that the editable installation of the checkout is not seen.
    (packages / "lent.pth").write_text(sysconfig.get_paths()["purelib"] + "\n")
    kept = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("DATP_", "PYTEST_", "PYTHON", "COV_"))
    }
    path = os.pathsep.join((str(venv / "bin"), kept.get("PATH", os.defpath)))
    return kept | {"PATH": path, "COLUMNS": "80", "TERM": "dumb", "NO_COLOR": "1"}


@pytest.fixture
def folder() -> Iterator[Path]:
    """Empty, and one through which the user of PostgreSQL can pass."""
    folder = Path(tempfile.mkdtemp(prefix="datp-newcomer-"))
    folder.chmod(0o711)
    yield folder
    shutil.rmtree(folder)


class Newcomer:
    def __init__(self, folder: Path, environment: dict[str, str]) -> None:
        self.folder = folder
        self._environment = environment
        self._log = folder / "up.log"
        self._up: subprocess.Popen[bytes] | None = None

    def write(self, name: str) -> None:
        (block,) = [each for each in blocks() if each.file == name]
        (self.folder / name).write_text(block.text + "\n")

    def run(self, *words: str, code: int = 0) -> str:
        done = subprocess.run(
            words,
            cwd=self.folder,
            env=self._environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=2 * COMMAND_S,
        )
        assert done.returncode == code, f"{done.stdout}\n{self.logs()}"
        return done.stdout

    def logs(self) -> str:
        """The end of each log of `datp up`: whether a worker was late, or a bell, is only there."""
        found = sorted(self.folder.glob(".datp/logs/worker-*.log"))
        return "\n".join(f"== {each.name}\n{each.read_text()[-2_000:]}" for each in found)

    def up(self, **variables: str) -> str:
        """Start `datp up` and leave it running; what it printed until it was ready."""
        with self._log.open("wb") as log:
            self._up = subprocess.Popen(
                ["datp", "up", "--no-flower", "--no-api"],
                cwd=self.folder,
                env=self._environment | variables,
                stdout=log,
                stderr=log,
            )
        return self.printed("Ctrl-C stops everything")

    def printed(self, words: str) -> str:
        assert self._up is not None
        ends_s = time.monotonic() + UP_S
        while words not in (text := self._log.read_text()):
            assert self._up.poll() is None and time.monotonic() < ends_s, text
            select.select([], [], [], 0.05)
        return text

    def down(self) -> None:
        if self._up is not None:
            self._up.send_signal(signal.SIGINT)
            assert self._up.wait(COMMAND_S) == 0, self._log.read_text()
            self._up = None


@pytest.fixture
def newcomer(folder: Path, environment: dict[str, str]) -> Iterator[Newcomer]:
    newcomer = Newcomer(folder, environment)
    yield newcomer
    newcomer.down()


def test_the_wheel_has_what_users_need_and_nothing_else(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
    assert set(NEEDED) <= names
    tops = {name.partition("/")[0] for name in names}
    assert {top for top in tops if not top.endswith(".dist-info")} == {
        "celeryconfig.py",
        "datp_tasks",
    }
    assert [name for name in names if "/testing/" in name and "bank" in name] == []


@pytest.mark.timeout(180)
def test_a_newcomer_gets_from_an_empty_folder_to_an_order_and_a_test(newcomer: Newcomer) -> None:
    where = newcomer.run("python", "-c", "import datp_tasks; print(datp_tasks.__file__)")
    assert str(ROOT) not in where
    for name in FILES:
        newcomer.write(name)

    started = newcomer.up(DATP_STEPS="my_steps")
    assert "Steps: those of my_steps (DATP_STEPS)" in started
    assert "transfer" not in started and "worker shop" not in started
    applied = newcomer.run("datp", "pipelines", "apply", "order.yaml", "--commit", "first", "--use")
    assert applied.endswith(": new version, committed, in use\n")
    newcomer.printed("node group shop is new: its worker has started, see .datp/logs/worker-shop")

    order = newcomer.run("datp", "submit", "order", "--wait", "--input", '{"cups": 2}')
    assert '{"cups": 2, "cents": 700, "confirmed": true}' in order
    tx = re.search(r"t\d\d-[0-9a-f]{32}", order)
    assert tx is not None
    assert tx[0] in newcomer.run("datp", "list").split()
    refusal = newcomer.run("datp", "demo", code=1)
    assert "start `datp up --example`" in " ".join(refusal.split())
    assert "2 passed" in newcomer.run(
        "python", "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_my_steps.py"
    )


def test_steps_that_cannot_be_imported_stop_datp_up_with_a_sentence(newcomer: Newcomer) -> None:
    said = newcomer.run("env", "DATP_STEPS=my_stesp", "datp", "up", code=1)
    assert said.startswith("DATP_STEPS names the module 'my_stesp', which cannot be imported")
    assert "Traceback" not in said
    assert not (newcomer.folder / ".datp").exists()
