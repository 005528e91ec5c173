"""Waiting for what another thread or another process does."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable


def eventually(holds: Callable[[], object], *, within_s: float = 20.0, what: str = "it") -> None:
    """Look until it holds, or fail when the time is over."""
    give_up_s = time.monotonic() + within_s
    pause = threading.Event()
    while not holds():
        assert time.monotonic() < give_up_s, f"{what} did not happen within {within_s:g} s"
        pause.wait(0.01)
