"""Names for requests that brought none: neither guessed nor counted by one who sees some of them.

A keyed hash of a number: random bytes for each would ask the kernel for them, and hand the
interpreter to another thread.
"""

from __future__ import annotations

import itertools
import os
import secrets
from hashlib import blake2b

ID_BYTES = 12

_key = secrets.token_bytes(32)
_numbers = itertools.count(1)


def _become_another() -> None:
    global _key
    _key = secrets.token_bytes(32)


# A process that was forked counts on from the same number.
os.register_at_fork(after_in_child=_become_another)


def new_request_id() -> str:
    number = next(_numbers).to_bytes(8)
    return f"req_{blake2b(number, key=_key, digest_size=ID_BYTES).hexdigest()}"
