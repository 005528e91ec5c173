"""Names for requests that brought none: a random part of the process, and a number.

A random name for each would ask the kernel for it, and hand the interpreter to another thread.
"""

from __future__ import annotations

import itertools
import os
import secrets

_process = secrets.token_hex(4)
_numbers = itertools.count(1)


def _become_another() -> None:
    global _process
    _process = secrets.token_hex(4)


# A process that was forked counts on from the same number.
os.register_at_fork(after_in_child=_become_another)


def new_request_id() -> str:
    return f"req_{_process}{next(_numbers) & 0xFFFFFFFF:08x}"
