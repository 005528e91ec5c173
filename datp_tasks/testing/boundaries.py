"""Boundaries that cannot be forgotten: each script call, commit, message and step is one.

While they are installed, each of them is a failpoint before and one after it, without a line in
the code itself. Names:

    script:claim                    a round trip of scripts (several kinds are joined by +)
    commit:transactions.finish            a commit, by the module and function that made it
    publish:bank/reserve            a bell for a step type; publish:ledger for submit messages
    effect:bank/reserve             a call of a step; also undo:… and probe:…

An error that is asked for at a boundary is the one that the real thing would raise. Before it,
nothing has happened; after it, everything has, and only the answer is lost.
"""

from __future__ import annotations

import inspect
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from types import FrameType
from typing import Any

import psycopg2
from kombu.exceptions import OperationalError as BrokerError
from redis.exceptions import ConnectionError as RedisConnectionError
from sqlalchemy.engine.default import DefaultDialect

from datp_tasks.bells.broker import CelerySend
from datp_tasks.engine.batch import Batch
from datp_tasks.engine.calls import StepCaller
from datp_tasks.engine.registry import StepType
from datp_tasks.engine.run import Run
from datp_tasks.engine.vector_steps import VectorSteps
from datp_tasks.failpoints import FailpointError, reach
from datp_tasks.ledger.submit_bell import SubmitBell
from datp_tasks.live.scripts import ScriptCall, ScriptRunner
from datp_tasks.testing.eager import EagerRing, EagerSend

#: What stands between a commit and the function that wanted it.
_LIBRARIES = ("sqlalchemy.", "contextlib", "datp_tasks.record.sole_statement", __name__)
#: Statements that only read, sent whole or prepared.
_READ = re.compile(r"(discard plans; )?((execute|prepare) datp_)?(select|show|set)", re.IGNORECASE)

#: Owner, name and original of everything that was replaced.
_replaced: list[tuple[type, str, Any]] = []


def install() -> None:
    """From now on, in this process, every boundary is a failpoint. Twice is as good as once."""
    if _replaced:
        return
    _replace(ScriptRunner, "run", _scripts)
    _replace(DefaultDialect, "do_commit", _commit)
    _replace(DefaultDialect, "do_execute", _autocommit)
    for sender in (CelerySend, EagerSend):
        _replace(sender, "__call__", _bell)
    for ring in (SubmitBell, EagerRing):
        _replace(ring, "__call__", _submit_message)
    _replace(StepCaller, "_called", _step)
    _replace(StepCaller, "_probed", _probe)
    _replace(VectorSteps, "_returned", _batch)


def uninstall() -> None:
    while _replaced:
        owner, name, original = _replaced.pop()
        setattr(owner, name, original)


@contextmanager
def installed() -> Iterator[None]:
    was_there = bool(_replaced)
    install()
    try:
        yield
    finally:
        if not was_there:
            uninstall()


def _replace(owner: type, name: str, wrapped: Callable[[Any], Any]) -> None:
    original = getattr(owner, name)
    _replaced.append((owner, name, original))
    setattr(owner, name, wrapped(original))


def _passing(name: str, act: Callable[[], Any], error: Callable[[], Exception]) -> Any:
    """Do something, with a failpoint on both sides."""
    try:
        reach(f"{name}:before")
        done = act()
        reach(f"{name}:after")
    except FailpointError:
        raise error() from None
    return done


# One wrapper for each kind of boundary.


def _scripts(original: Any) -> Any:
    def run(runner: ScriptRunner, calls: Sequence[ScriptCall]) -> Any:
        if not calls:
            return []
        name = "+".join(sorted({call.script.name for call in calls}))
        return _passing(f"script:{name}", lambda: original(runner, calls), _redis_is_away)

    return run


def _commit(original: Any) -> Any:
    def do_commit(dialect: Any, connection: Any) -> None:
        def lost() -> Exception:
            # As the driver leaves it: the server rolls back what was not committed.
            connection.close()
            return _sql_is_away()

        caller = _caller()
        if caller is None:
            original(dialect, connection)
        else:
            _passing(f"commit:{caller}", lambda: original(dialect, connection), lost)

    return do_commit


def _autocommit(original: Any) -> Any:
    """Where each statement is a transaction, each one that writes is a commit."""

    def do_execute(dialect: Any, cursor: Any, statement: str, *more: Any) -> None:
        def act() -> None:
            original(dialect, cursor, statement, *more)

        def lost() -> Exception:
            cursor.connection.close()
            return _sql_is_away()

        alone = getattr(cursor.connection, "autocommit", False)
        caller = _caller() if alone and not _READ.match(statement.lstrip()) else None
        if caller is None:
            act()
        else:
            _passing(f"commit:{caller}", act, lost)

    return do_execute


def _bell(original: Any) -> Any:
    def send(sender: Any, step_type: str, pairs: Any, **where: Any) -> None:
        def act() -> None:
            original(sender, step_type, pairs, **where)

        _passing(f"publish:{step_type}", act, _broker_is_away)

    return send


def _submit_message(original: Any) -> Any:
    def ring(sender: Any, works: Any) -> None:
        _passing("publish:ledger", lambda: original(sender, works), _broker_is_away)

    return ring


def _step(original: Any) -> Any:
    def call(caller: StepCaller, run: Run, step_type: StepType, sql: Any) -> Any:
        kind = "effect" if run.action.kind == "run" else "undo"
        name = f"{kind}:{step_type.name}"

        async def finish(awaited: Any) -> Any:
            try:
                returned = await awaited
                reach(f"{name}:after")
            except FailpointError:
                raise _outside_is_away() from None
            return returned

        try:
            reach(f"{name}:before")
            returned = original(caller, run, step_type, sql)
            if inspect.iscoroutine(returned):
                return finish(returned)
            reach(f"{name}:after")
        except FailpointError:
            raise _outside_is_away() from None
        return returned

    return call


def _probe(original: Any) -> Any:
    def probe(caller: StepCaller, run: Run, step_type: StepType) -> Any:
        def act() -> Any:
            return original(caller, run, step_type)

        return _passing(f"probe:{step_type.name}", act, _outside_is_away)

    return probe


def _batch(original: Any) -> Any:
    def returned(steps: VectorSteps, function: Any, batch: Batch, limit_s: float) -> Any:
        kind = {"run": "effect", "undo": "undo", "probe": "probe"}[batch.purpose]

        def act() -> Any:
            return original(steps, function, batch, limit_s)

        return _passing(f"{kind}:{batch.step_type}", act, _outside_is_away)

    return returned


# What the real things raise.


def _redis_is_away() -> Exception:
    return RedisConnectionError("a failpoint cut the connection to Redis")


def _sql_is_away() -> Exception:
    # The library knows by these words that the connection is gone.
    return psycopg2.OperationalError("server closed the connection unexpectedly (a failpoint)")


def _broker_is_away() -> Exception:
    return BrokerError("a failpoint cut the connection to the broker")


def _outside_is_away() -> Exception:
    return ConnectionResetError("a failpoint cut the connection of the step")


def _caller() -> str | None:
    """Which function commits; None if it is not one of ours, such as a test."""
    frame: FrameType | None = sys._getframe(1)
    found: str | None = None
    while frame is not None:
        module = str(frame.f_globals.get("__name__", ""))
        if not module.startswith(_LIBRARIES):
            if found is None:
                found = f"{module.rpartition('.')[2]}.{frame.f_code.co_name.strip('_')}"
            if module.startswith("datp_tasks.") and not module.startswith("datp_tasks.testing."):
                return found
        frame = frame.f_back
    return None
