"""What explains over HTTP: timeouts, step types, logs, replays, the audit, what is sealed."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from datp_tasks.cli.remote_calls import Json, RemoteCalls, known_moment, moment, refuse_over_http
from datp_tasks.engine.step_types import StepTypeInfo
from datp_tasks.model.log_lines import LogLine
from datp_tasks.model.state import State
from datp_tasks.model.view import View
from datp_tasks.operator.replay import Replay
from datp_tasks.operator.transaction_logs import LogPage
from datp_tasks.record.alerts import Alert
from datp_tasks.record.audit_chain import Noted
from datp_tasks.record.timeouts import NextTimeout, Peek, TimeoutStanding

PAGE_MAX = 200
ROWS_MAX = 1_000


class RemoteTimeouts:
    """As `Timeouts`, as far as commands use it."""

    def __init__(self, calls: RemoteCalls) -> None:
        self._calls = calls
        self._found: Json | None = None

    def peek(self) -> Peek:
        found = self._calls.get("timeouts", limit=ROWS_MAX)
        self._found = found
        behind, due = bool(found["behind"]), bool(found["due"])
        return Peek(is_new=False, is_due=due, lag_s=found["lagSeconds"], is_alarmed=behind)

    def standing(self) -> TimeoutStanding:
        found = self._read()
        segment = found["segment"]
        return TimeoutStanding(
            value=segment["value"],
            xact=segment["xact"],
            changed_at=moment(segment["changedAt"]),
            watched=found["watched"],
            due=found["due"],
        )

    def next_due(self, rows_max: int) -> list[NextTimeout]:
        return [_next(each) for each in self._read()["next"]][:rows_max]

    def _read(self) -> Json:
        if self._found is None:
            self.peek()
        assert self._found is not None
        return self._found

    def __getattr__(self, name: str) -> Any:
        refuse_over_http(f"the timeouts' {name}")


class RemoteAlerts:
    def __init__(self, calls: RemoteCalls) -> None:
        self._calls = calls

    def open_alerts(self) -> list[Alert]:
        return [
            Alert(
                each["id"],
                each["kind"],
                each["subject"],
                each["summary"],
                known_moment(each["createdAt"]),
            )
            for each in self._calls.pages("alerts")
        ]


class RemoteLogs:
    """As `TransactionLogs`."""

    def __init__(self, calls: RemoteCalls) -> None:
        self._calls = calls

    def page(self, tx_id: str, *, after: str | None = None, rows_max: int = 200) -> LogPage:
        found = self._calls.get("transactions", tx_id, "logs", cursor=after, limit=rows_max)
        return LogPage([log_line_of(each) for each in found["lines"]], found["nextCursor"])


class RemoteAudit:
    """As `AuditChain`, as far as commands use it."""

    def __init__(self, calls: RemoteCalls) -> None:
        self._calls = calls

    def actions(
        self, *, subject: str | None, key_id: str | None, action: str | None, rows_max: int
    ) -> list[Noted]:
        found: list[Noted] = []
        cursor: str | None = None
        while len(found) < rows_max:
            page = self._calls.get(
                *("audit", "actions"),
                subject=subject,
                keyId=key_id,
                action=action,
                limit=min(PAGE_MAX, rows_max - len(found)),
                cursor=cursor,
            )
            found += [_noted(each) for each in page["actions"]]
            cursor = page.get("nextCursor")
            if cursor is None:
                break
        return found

    def __getattr__(self, name: str) -> Any:
        refuse_over_http(f"the audit's {name}")


def step_types_of(calls: RemoteCalls) -> list[StepTypeInfo]:
    return [_step_type(each) for each in calls.get("step-types")["stepTypes"]]


def step_type_of(calls: RemoteCalls, name: str) -> StepTypeInfo:
    return _step_type(calls.get("step-types", *name.split("/")))


def replay_of(found: Mapping[str, Any]) -> Replay:
    """Without the entries of the journal, which the API does not give."""
    state = found["state"]
    view = None
    if state is not None:
        parsed = State.from_json(json.dumps(state))
        view = View(parsed, status=found["status"], version=found["version"])
    return Replay(
        found["txId"],
        [],
        view,
        faults=list(found["faults"]),
        dropped=found["dropped"],
        erased=found["erased"],
    )


def log_line_of(found: Mapping[str, Any]) -> LogLine:
    version, _, place = str(found["cursor"]).partition(".")
    is_sealed = not isinstance(found["text"], str)
    return LogLine(
        version=int(version),
        place=int(place),
        level=found["level"] or "",
        text="(sealed)" if is_sealed else found["text"],
        at=moment(found["at"]),
        path=found["step"] or "",
        step_type=found["stepType"] or "",
        attempt=found["attempt"],
        fields=found["fields"],
        is_sealed=is_sealed,
    )


def _step_type(found: Mapping[str, Any]) -> StepTypeInfo:
    about = {name: found[name] for name in found if name not in ("name", "groups", "nodes")}
    return StepTypeInfo(found["name"], about, tuple(found["groups"]), found["nodes"])


def _next(found: Mapping[str, Any]) -> NextTimeout:
    expires_at = known_moment(found["expiresAt"])
    return NextTimeout(
        tx_id=found["txId"],
        pipeline=found["pipeline"],
        owner=found["owner"],
        expires_at=expires_at,
        left_s=(expires_at - datetime.now(UTC)).total_seconds(),
        expiring_at=moment(found["expiringAt"]),
        state=found["state"],
    )


def _noted(found: Mapping[str, Any]) -> Noted:
    return Noted(
        id=found["id"],
        created_at=known_moment(found["at"]),
        actor=found["actor"],
        key_id=found["keyId"],
        request_id=found["requestId"],
        address=found["address"],
        action=found["action"],
        subject=found["subject"],
        reason=found["reason"],
        details=found["details"],
        position=found["position"],
        hash=found["hash"],
    )
