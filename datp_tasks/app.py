"""The Celery app: what `celery -A datp_tasks worker -Q master` finds.

Nothing is connected and no step is imported before a worker starts, so beat, Flower and clients
stay light.
"""

from __future__ import annotations

import logging
import threading
from typing import Any

from celery import signals

from datp_tasks import failpoints
from datp_tasks.bells.broker import TASK_PREFIX, make_celery, refuse_eager
from datp_tasks.engine.registry import discover
from datp_tasks.errors import DatpError, SettingsError
from datp_tasks.observe import logs
from datp_tasks.runtime.main_process import MainProcess, WorkerInfo
from datp_tasks.runtime.tasks import register
from datp_tasks.runtime.worker_process import WorkerProcess
from datp_tasks.settings import Settings

#: How long a process that ends may take to close its connections.
LEAVE_S = 5.0

#: Pools that put many tasks on one thread.
GREEN_POOLS = ("gevent", "eventlet")

log = logging.getLogger("datp.app")

settings = Settings.from_env()
app = make_celery(settings)
info = WorkerInfo()
main_process = MainProcess(app, settings, info)
process = WorkerProcess(app, settings, info=info)
register(app, process)


@signals.celeryd_init.connect(weak=False)  # type: ignore[untyped-decorator]
def _discover(**_: Any) -> None:
    """A worker without its step types must not start; Celery would only log an exception."""
    try:
        refuse_eager()
        discover(settings.steps)
        failpoints.arm_from_env()
    except DatpError as error:
        raise SystemExit(str(error)) from None
    except Exception:
        log.exception("a module of step types cannot be imported")
        raise SystemExit(1) from None


@signals.after_setup_logger.connect(weak=False)  # type: ignore[untyped-decorator]
@signals.after_setup_task_logger.connect(weak=False)  # type: ignore[untyped-decorator]
def _write_logs(logger: logging.Logger | None = None, **_: Any) -> None:
    if logger is not None:
        logs.set_up(settings, logger.handlers)


@signals.celeryd_after_setup.connect(weak=False)  # type: ignore[untyped-decorator]
def _set_up(sender: str = "", instance: Any = None, **_: Any) -> None:
    pool = getattr(getattr(instance, "pool_cls", None), "__module__", "").rpartition(".")[2]
    if pool in GREEN_POOLS:
        raise SystemExit(
            f"the pool {pool} is not supported: one step that computes or waits in C would hold up "
            "the heartbeat of all others, whose transactions are then taken over. Use prefork "
            "(the default), threads or solo; async steps share a process by themselves."
        )
    try:
        main_process.set_up(sender)
    except SettingsError as error:
        raise SystemExit(str(error)) from None


@signals.worker_process_init.connect(weak=False)  # type: ignore[untyped-decorator]
def _forked(**_: Any) -> None:
    main_process.forget()
    process.forget()
    process.join()


@signals.worker_ready.connect(weak=False)  # type: ignore[untyped-decorator]
def _ready(sender: Any = None, **_: Any) -> None:
    main_process.steer(sender)
    # A worker of one process, solo or with threads, is known before its first bell; else its
    # pool processes are the nodes, and the main process is none.
    if getattr(sender, "pool", None).__class__.__module__.endswith((".solo", ".thread")):
        process.join()


@signals.worker_init.connect(weak=False)  # type: ignore[untyped-decorator]
def _offer_control(**_: Any) -> None:
    """The broadcast `datp_groups`: look at the node groups now, not with the next beat."""
    from celery.worker.control import control_command

    @control_command(name="datp_groups")  # type: ignore[untyped-decorator]
    def look_at_groups(state: Any, **_: Any) -> dict[str, str]:
        main_process.look_at_groups()
        return {"ok": "the node groups are looked at"}


@signals.worker_shutting_down.connect(weak=False)  # type: ignore[untyped-decorator]
def _shutting_down(**_: Any) -> None:
    main_process.stop_steering()


@signals.worker_process_shutdown.connect(weak=False)  # type: ignore[untyped-decorator]
@signals.worker_shutdown.connect(weak=False)  # type: ignore[untyped-decorator]
def _leave(**_: Any) -> None:
    """Whatever does not let go must not keep the process from ending: nothing depends on it."""
    leaving = threading.Thread(target=process.close, name="datp-leave", daemon=True)
    leaving.start()
    leaving.join(LEAVE_S)
    if leaving.is_alive():
        log.warning("not everything was closed within %g s; the process ends all the same", LEAVE_S)


@signals.task_unknown.connect(weak=False)  # type: ignore[untyped-decorator]
def _unknown(name: str = "", message: Any = None, **_: Any) -> None:
    if name.startswith(TASK_PREFIX) and message is not None:
        try:
            body = message.payload
            process.note_unknown_step(name, body[0][0])
        except Exception:
            log.exception("a bell for the unknown step %s could not be read", name)
