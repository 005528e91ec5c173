"""What a process calls itself where others must tell it apart: host, process id, and a random part.

The random part is there because containers on one host, or after a restart, share both others.
"""

from __future__ import annotations

import os
import secrets
import socket


def process_name() -> str:
    """Not unique: for people who look for the process."""
    return f"{socket.gethostname()}-{os.getpid()}"


def unique_name() -> str:
    """Another one at each call, also in the same process."""
    return f"{process_name()}-{secrets.token_hex(4)}"
