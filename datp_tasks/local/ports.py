"""Free TCP ports on the loopback interface."""

from __future__ import annotations

import random
import socket

HOST = "127.0.0.1"

# Below the range from which Linux (32768 and up) and macOS (49152 and up) number outgoing
# connections: a client that keeps dialling a stopped server inside that range can be given the
# server's own port, and the server then cannot come back.
LOWEST_PORT = 15_000
HIGHEST_PORT = 30_000
TRIES = 200


def port_is_free(port: int) -> bool:
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        # The servers set this too; without it a port counts as taken for a minute after use.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
        except OSError:
            return False
    return True


def pick_free_port() -> int:
    """A port that is free now. Another process may still take it first; callers must cope."""
    for _ in range(TRIES):
        port = random.randint(LOWEST_PORT, HIGHEST_PORT)
        if port_is_free(port):
            return port
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.bind((HOST, 0))
        return int(probe.getsockname()[1])
