"""Python's garbage collector, where it would look for cycles that are not there."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def collector_paused() -> Iterator[None]:
    """For work on many objects of which none refers to itself: they are freed all the same, and the
    collector would look at each of them several times.

    It counts for all threads of the process, so it is for work that ends soon. Of two threads that
    overlap, the one that came first lets the collector go on.
    """
    was_enabled = gc.isenabled()
    try:
        gc.disable()
        yield
    finally:
        if was_enabled:
            gc.enable()
