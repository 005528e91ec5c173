"""A time limit for code in this thread.

In a main thread an alarm interrupts even a blocking system call. Elsewhere (a thread pool) the
exception is delivered between two bytecodes, so a blocking call ends first.
"""

from __future__ import annotations

import ctypes
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

from datp_tasks.errors import StepTimeout


@contextmanager
def time_limit(seconds: float) -> Iterator[None]:
    """Raise StepTimeout inside the block when it takes longer."""
    if threading.current_thread() is threading.main_thread():
        with _alarm(seconds):
            yield
    else:
        with _injected(seconds):
            yield


@contextmanager
def _alarm(seconds: float) -> Iterator[None]:
    def ring(_signal: int, _frame: FrameType | None) -> None:
        raise StepTimeout(f"the step ran longer than {seconds:g} s")

    before = signal.signal(signal.SIGALRM, ring)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


@contextmanager
def _injected(seconds: float) -> Iterator[None]:
    thread_id = threading.get_ident()

    def inject() -> None:
        ctypes.pythonapi.PyThreadState_SetAsyncExc(
            ctypes.c_ulong(thread_id), ctypes.py_object(StepTimeout)
        )

    timer = threading.Timer(seconds, inject)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
