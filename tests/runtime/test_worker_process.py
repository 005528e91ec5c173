"""What a process of a worker does before its first bell."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest

from datp_tasks.app import app
from datp_tasks.runtime import worker_process
from datp_tasks.runtime.worker_process import WorkerProcess
from datp_tasks.testing import Kit


@pytest.fixture(autouse=True)
def _as_before() -> Iterator[None]:
    before = gc.get_threshold()
    yield
    gc.set_threshold(*before)
    gc.unfreeze()


@pytest.mark.parametrize("chosen", [0, 100_000])
def test_a_module_of_steps_that_looks_more_rarely_has_its_way(datp: Kit, chosen: int) -> None:
    gc.set_threshold(chosen, 10, 10)
    process = WorkerProcess(app, datp.settings, connect=lambda: datp.connections, watch=False)
    process.join()
    assert gc.get_threshold()[0] == chosen


def test_a_worker_looks_for_reference_cycles_once_in_thousands_of_objects(datp: Kit) -> None:
    process = WorkerProcess(app, datp.settings, connect=lambda: datp.connections, watch=False)
    process.join()
    assert gc.get_threshold()[0] == worker_process.NEW_OBJECTS_MAX
    # What was imported is not looked through again.
    assert gc.get_freeze_count() > 10_000
