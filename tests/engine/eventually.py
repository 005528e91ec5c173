"""Waiting for something that another thread does."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable


def eventually(holds: Callable[[], bool], *, within_s: float = 20.0) -> None:
    """Look until it holds, or fail when the time is over."""
    give_up_s = time.monotonic() + within_s
    pause = threading.Event()
    while not holds():
        assert time.monotonic() < give_up_s, f"did not happen within {within_s} s"
        pause.wait(0.01)
