"""Who runs PostgreSQL. It refuses to run as root, so root hands it to an unprivileged account.

That account must be able to reach the programs and the data. Where it cannot (a virtualenv or a
checkout under a closed home directory), they go to a place of their own: no permission of an
existing directory is ever opened.
"""

from __future__ import annotations

import hashlib
import os
import pwd
import shutil
import stat
import tempfile
from dataclasses import dataclass
from pathlib import Path

from datp_tasks.errors import LocalStackError
from datp_tasks.local.binaries import PostgresBinaries

UNPRIVILEGED_NAMES = ("nobody", "daemon")
NOT_NEEDED_TO_RUN = shutil.ignore_patterns("include", "__pycache__", "*.py", "*.a")


@dataclass(frozen=True)
class Account:
    uid: int
    gid: int

    def owns(self, path: Path) -> bool:
        return path.stat().st_uid == self.uid


def running_as_root() -> bool:
    return os.geteuid() == 0


def unprivileged_account() -> Account:
    for name in UNPRIVILEGED_NAMES:
        try:
            entry = pwd.getpwnam(name)
        except KeyError:
            continue
        return Account(entry.pw_uid, entry.pw_gid)
    raise LocalStackError(
        "PostgreSQL does not run as root, and there is no user `nobody` to run it as. "
        "Start datp as a normal user, or give DATP_DATABASE_URL."
    )


def can_enter(directory: Path, account: Account) -> bool:
    """Whether the account can reach what is inside, by the plain permission bits."""
    resolved = directory.resolve()
    return all(_allows(each, account, stat.S_IXOTH) for each in (resolved, *resolved.parents))


def can_run(program: Path, account: Account) -> bool:
    resolved = program.resolve()
    return can_enter(resolved.parent, account) and _allows(
        resolved, account, stat.S_IROTH | stat.S_IXOTH
    )


def _allows(path: Path, account: Account, bits: int) -> bool:
    status = path.stat()
    if status.st_uid == account.uid:
        bits <<= 6
    elif status.st_gid == account.gid:
        bits <<= 3
    return status.st_mode & bits == bits


def open_base() -> Path:
    """Where root keeps what another account must reach.

    /var/lib first: system services tidy up /var/tmp after some weeks, and data must outlive that.
    """
    base = Path("/var/lib/datp-tasks")
    try:
        base.mkdir(mode=0o755, exist_ok=True)
    except OSError:
        return Path("/var/tmp")
    return base


def new_open_directory(base: Path, for_path: Path) -> Path:
    """A new directory that others can pass through but not list."""
    prefix = f"datp-{os.geteuid()}-{_short_hash(str(for_path))}-"
    directory = Path(tempfile.mkdtemp(prefix=prefix, dir=base))
    directory.chmod(0o711)
    return directory


def binaries_for(
    binaries: PostgresBinaries, account: Account | None, base: Path | None = None
) -> PostgresBinaries:
    """The same programs, copied if the account cannot run them where they are."""
    if account is None or (
        can_run(binaries.postgres, account) and can_run(binaries.initdb, account)
    ):
        return binaries
    if binaries.package_dir is None:
        raise LocalStackError(
            "PostgreSQL does not run as root, and an unprivileged user cannot run "
            f"{binaries.postgres}. Install it for all users, or start datp as a normal user."
        )
    return _copied(binaries.package_dir, base or open_base())


def _copied(package_dir: Path, base: Path) -> PostgresBinaries:
    status = (package_dir / "pginstall" / "bin" / "postgres").stat()
    # The hash covers the version through size and time, so an upgrade is copied anew.
    name = _short_hash(f"{package_dir} {status.st_size} {status.st_mtime_ns}")
    target = base / f"datp-{os.geteuid()}-{name}"
    if not target.exists():
        draft = new_open_directory(base, package_dir)
        libraries = package_dir.with_name(package_dir.name + ".libs")
        shutil.copytree(
            package_dir, draft / package_dir.name, symlinks=True, ignore=NOT_NEEDED_TO_RUN
        )
        if libraries.is_dir():
            shutil.copytree(libraries, draft / libraries.name, symlinks=True)
        _open_for_reading(draft)
        try:
            draft.rename(target)
        except OSError:
            # Another process was first; its copy is checked below like any other.
            shutil.rmtree(draft)
    _refuse_foreign(target)
    return PostgresBinaries.in_package(target / package_dir.name)


def _open_for_reading(copy: Path) -> None:
    for folder, _, names in os.walk(copy):
        os.chmod(folder, 0o755)
        for name in names:
            path = Path(folder, name)
            if not path.is_symlink():
                path.chmod(0o755 if path.stat().st_mode & stat.S_IXUSR else 0o644)


def _refuse_foreign(directory: Path) -> None:
    """In a directory that every user may write to, another user could have put programs first."""
    status = directory.lstat()
    if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.geteuid() or status.st_mode & 0o022:
        raise LocalStackError(f"{directory} was not made by datp; remove it and try again.")


def _short_hash(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:12]
