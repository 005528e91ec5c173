"""Free TCP ports on the loopback interface."""

from __future__ import annotations

import random
import socket

from datp_tasks.errors import LocalStackError

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


class PortMarks:
    """Ports that a stack keeps for programs that it is about to start, as long as it runs.

    A free port is taken only when the program listens, a second or two after it was chosen; two
    stacks that start together would choose the same. So a stack first takes the UDP port of that
    number, which one process of the machine can have and which the kernel frees however it ends.
    """

    def __init__(self) -> None:
        self._held: list[socket.socket] = []

    def take(self, preferred: int | None = None) -> int:
        """A port that is free and that no other stack has marked; the preferred one if possible."""
        if preferred is not None and self._mark(preferred):
            return preferred
        for _ in range(TRIES):
            port = pick_free_port()
            if self._mark(port):
                return port
        raise LocalStackError(f"No free port was found on {HOST} in {TRIES} tries.")

    def release(self) -> None:
        while self._held:
            self._held.pop().close()

    def _mark(self, port: int) -> bool:
        mark = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        try:
            mark.bind((HOST, port))
        except OSError:
            mark.close()
            return False
        # Only now: one that had the mark before may listen since.
        if not port_is_free(port):
            mark.close()
            return False
        self._held.append(mark)
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
