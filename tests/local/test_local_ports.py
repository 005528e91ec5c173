"""Ports of stacks that start at the same moment."""

from __future__ import annotations

import socket
from collections.abc import Iterator

import pytest

from datp_tasks.local.ports import HOST, PortMarks, pick_free_port


@pytest.fixture
def marks() -> Iterator[tuple[PortMarks, PortMarks]]:
    both = PortMarks(), PortMarks()
    yield both
    for each in both:
        each.release()


def test_two_that_choose_before_either_listens_choose_differently(
    marks: tuple[PortMarks, PortMarks],
) -> None:
    first, second = marks
    wanted = pick_free_port()
    assert first.take(wanted) == wanted
    other = second.take(wanted)
    assert other != wanted
    # The marks stand in the way of no program that listens there.
    with socket.create_server((HOST, wanted)), socket.create_server((HOST, other)):
        pass
    first.release()
    assert second.take(wanted) == wanted


def test_a_port_that_a_program_listens_at_is_not_taken_and_not_marked(
    marks: tuple[PortMarks, PortMarks],
) -> None:
    first, second = marks
    with socket.create_server((HOST, 0)) as listener:
        taken = int(listener.getsockname()[1])
        assert first.take(taken) != taken
    assert second.take(taken) == taken
