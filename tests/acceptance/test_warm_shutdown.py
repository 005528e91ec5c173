"""A worker that is told to end does so when its last hop is over, and not half a minute later."""

from __future__ import annotations

import fcntl
import os
import signal
import struct
import termios
import time
from contextlib import suppress
from pathlib import Path

import pytest

from datp_tasks import Pipeline
from datp_tasks.bells.broker import backlog
from datp_tasks.model.status import Status
from tests.support.eventually import eventually
from tests.support.house import House, log_of, process_state

pytestmark = pytest.mark.acceptance

#: Ending takes a second or two; a pool process that waits for its parent in vain takes 30 s more.
SOON_S = 15.0
#: The length goes ahead of a bell, in a write of its own.
HEADER_BYTES = 4


def unread_bytes(pid: int) -> int:
    """What lies in the pipes of a process and was not read yet, by whichever end."""
    pipes: dict[str, int] = {}
    for entry in Path(f"/proc/{pid}/fd").iterdir():
        with suppress(OSError):
            target = os.readlink(entry)
            if target.startswith("pipe:") and target not in pipes:
                pipes[target] = _waiting_in(entry)
    return sum(pipes.values())


def _waiting_in(pipe: Path) -> int:
    descriptor = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    try:
        answer = fcntl.ioctl(descriptor, termios.FIONREAD, struct.pack("i", 0))
    finally:
        os.close(descriptor)
    return int(struct.unpack("i", answer)[0])


class Ending:
    """A worker that was told to end while a bell waits in the pipe of its pool process."""

    def __init__(self, house: House) -> None:
        house.use(Pipeline("plain").step("acc/mark"))
        self.house = house
        self.worker = house.worker()
        house.wait_ready(self.worker)
        self.child = house.notes_about("mark", house.run("plain").tx_id)[0]["pid"]
        # Late acks: the parent has read the result, so it knows that the pool process is free.
        busy = house.celery.control.inspect(timeout=1).active
        eventually(lambda: list((busy() or {}).values()) == [[]], what="the ack")
        os.kill(self.child, signal.SIGSTOP)
        eventually(lambda: process_state(self.child) == "T")
        self.tx_id = house.submit("plain")
        eventually(lambda: unread_bytes(self.child) > HEADER_BYTES, what="the bell in the pipe")
        bell_bytes = unread_bytes(self.child)
        self.worker.send_signal(signal.SIGTERM)
        # The last word to a pool process is written after all that is given up was given up.
        eventually(lambda: unread_bytes(self.child) > bell_bytes, what="the end of the consumer")

    def ends_soon_after(self, number: signal.Signals) -> None:
        os.kill(self.child, number)
        began_s = time.monotonic()
        eventually(lambda: not self.worker.is_running(), within_s=60, what="the end of the worker")
        took_s = time.monotonic() - began_s
        assert self.worker.exit_code == 0, log_of(self.worker)[-2_000:]
        assert took_s < SOON_S, f"{took_s:.1f} s"


@pytest.mark.timeout(120)
def test_a_bell_on_its_way_to_a_pool_process_does_not_hold_up_the_end(house: House) -> None:
    ending = Ending(house)
    ending.ends_soon_after(signal.SIGCONT)
    assert house.client.status(ending.tx_id).status is Status.SUCCESS
    assert len(house.notes_about("mark", ending.tx_id)) == 1
    # The broker was told as well: nothing went back to be delivered a second time.
    assert backlog(house.celery, "master") == 0


@pytest.mark.timeout(120)
def test_a_pool_process_that_dies_with_such_a_bell_does_not_either(house: House) -> None:
    ending = Ending(house)
    ending.ends_soon_after(signal.SIGKILL)
    # It was not lost with the process: the next worker hears it.
    assert backlog(house.celery, "master") == 1
    house.wait_ready(house.worker())
    assert house.client.wait(ending.tx_id, timeout_s=20).status is Status.SUCCESS
    assert len(house.notes_about("mark", ending.tx_id)) == 1
