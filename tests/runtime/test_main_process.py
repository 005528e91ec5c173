"""What a worker does before it makes its pool."""

from __future__ import annotations

import pytest
from sqlalchemy.exc import ProgrammingError

from datp_tasks.bells.broker import make_celery
from datp_tasks.model.actor import Actor
from datp_tasks.runtime import main_process
from datp_tasks.runtime.main_process import MainProcess, WorkerInfo
from datp_tasks.testing import Kit


def test_a_stopped_group_stays_so_whatever_the_look_at_the_tables_says(
    datp: Kit, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def refused(engine: object) -> None:
        raise ProgrammingError("SELECT", {}, Exception("permission denied"))

    monkeypatch.setattr(main_process, "require_tables", refused)
    datp.connections.groups.set("halted", {"concurrency": 0}, actor=Actor(name="test"))
    celery = make_celery(datp.settings)
    celery.amqp.queues.select(["halted", "open"])
    MainProcess(celery, datp.settings, WorkerInfo()).set_up("w@h")
    assert set(celery.amqp.queues.consume_from) == {"open"}
    assert "permission denied" in caplog.text
