"""Transactions over HTTP, with the methods of the client and the operator that commands call."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from datp_tasks.cli.remote_calls import (
    Json,
    RemoteCalls,
    known_moment,
    moment,
    refuse_over_http,
)
from datp_tasks.cli.remote_reports import RemoteLogs, log_line_of, replay_of
from datp_tasks.cli.remote_sealing import RemoteRetention
from datp_tasks.client.requests import Request, Submitted
from datp_tasks.errors import FilterInvalid
from datp_tasks.http.api_error import ApiError
from datp_tasks.http.operations import SubmitOptions, submission
from datp_tasks.live.invariants import Violation
from datp_tasks.model.actor import Actor, Role
from datp_tasks.model.approval import Approval, ApprovalState, Vote, selection_of
from datp_tasks.model.status import FINAL, Status
from datp_tasks.operator.action_result import ActionResult
from datp_tasks.operator.bulk import Action
from datp_tasks.operator.doctor import Diagnosis, InDoubt, InFlight
from datp_tasks.operator.doubt_decisions import Decision
from datp_tasks.operator.replay import Replay
from datp_tasks.operator.selection import Where, checked_order
from datp_tasks.operator.unmask import Unmasked
from datp_tasks.operator.why import Why
from datp_tasks.record.record_types import Summary

PAGE_MAX = 200
#: What has not ended, as a filter of the API.
OPEN = ",".join(sorted(set(Status) - FINAL))


class RemoteClient:
    """As `Client`, as far as commands use it. Who acts is whose key it is."""

    def __init__(self, calls: RemoteCalls) -> None:
        self._calls = calls

    def submit(
        self,
        pipeline: str,
        data: Mapping[str, Any],
        *,
        owner: str | None = None,
        by: Actor | None = None,
        **options: Any,
    ) -> Submitted:
        given: SubmitOptions = {  # type: ignore[assignment]
            name: value for name, value in options.items() if value is not None
        }
        made = self._calls.api.submit(pipeline, data, **given)
        return Submitted(made.tx_id, made.status, duplicate=made.repeated)

    def status(self, tx_id: str) -> Summary:
        return summary_of(self._calls.api.get(tx_id).document)

    def wait(self, tx_id: str, timeout_s: float = 60.0) -> Summary:
        return summary_of(self._calls.api.wait(tx_id, timeout_s).document)

    def cancel(self, tx_id: str, reason: str, *, by: Actor | None = None) -> Summary:
        return summary_of(self._calls.api.cancel(tx_id, reason).document)

    def wake(self, tx_id: str, *, by: Actor | None = None) -> bool:
        return self._calls.api.wake(tx_id)

    def set_switch(
        self, tx_id: str, name: str, value: bool | int | float | str, *, by: Actor | None = None
    ) -> bool:
        return self._calls.api.set_switch(tx_id, name, value)

    @property
    def bulk_transfers(self) -> RemoteBulkTransfers:
        return RemoteBulkTransfers(self._calls)

    def __getattr__(self, name: str) -> Any:
        refuse_over_http(f"the client's {name}")


class RemoteBulkTransfers:
    """As `BulkTransfers`, as far as commands use it."""

    def __init__(self, calls: RemoteCalls) -> None:
        self._calls = calls

    def submit(self, bulk: Request, transfers: Sequence[Request]) -> Submitted:
        made = self._calls.api.submit_bulk_transfer(
            bulk.pipeline, [_sent(each) for each in transfers], bulk.input, **_options(bulk)
        )
        return Submitted(made.bulk_id, Status.QUEUED, duplicate=made.repeated)

    def document(self, tx_id: str) -> Json:
        return self._calls.api.get_bulk_transfer(tx_id).document

    def cancel(self, tx_id: str, reason: str, *, break_glass: bool) -> Json:
        return self._calls.api.cancel_bulk_transfer(tx_id, reason, break_glass=break_glass).document


def _sent(request: Request) -> Json:
    return submission(request.pipeline, request.input, _options(request))


def _options(request: Request) -> SubmitOptions:
    return {  # type: ignore[return-value]
        name: value
        for name in SubmitOptions.__optional_keys__
        if (value := getattr(request, name)) is not None and value is not False
    }


class RemoteOperator:
    """As `Operator`, as far as commands use it."""

    def __init__(self, calls: RemoteCalls) -> None:
        self._calls = calls
        self.approvals = RemoteApprovals(calls)
        self.logs = RemoteLogs(calls)
        self.retention = RemoteRetention(calls)

    def why(self, tx_id: str, *, actor: Actor | None = None) -> Why:
        found = self._calls.get("transactions", tx_id, "why")
        return Why(
            found["txId"],
            found["status"],
            found["cause"],
            found["answer"],
            moment(found["movesAt"]),
            found["hints"],
        )

    def doctor(self) -> Diagnosis:
        found = self._calls.get("doctor")
        return Diagnosis(
            in_flight=[in_flight_of(each) for each in found["inFlight"]],
            in_doubt=[_in_doubt(each) for each in found["inDoubt"]],
            violations=[Violation(each["txId"], each["what"]) for each in found["violations"]],
            sizes=found["sizes"],
            journal_backlog=found["journalBacklog"],
            lost_shards=found["lostShards"],
            open_alerts=found["openAlerts"],
        )

    def resolve(
        self,
        tx_id: str,
        decision: Decision,
        *,
        reason: str,
        output: Json | None = None,
        actor: Actor,
        break_glass: bool = False,
    ) -> None:
        body = {"decision": decision, "reason": reason, "breakGlass": break_glass}
        if output is not None:
            body["output"] = output
        self._calls.post("transactions", tx_id, "resolve", body=body)

    def replay(self, tx_id: str) -> Replay:
        return replay_of(self._calls.get("transactions", tx_id, "replay"))

    def unmask(self, tx_id: str, *, reason: str, actor: Actor) -> Unmasked:
        found = self._calls.post("transactions", tx_id, "unmask", body={"reason": reason})
        return Unmasked(
            summary_of(found),
            list(found["errors"]),
            [(each["id"], each["params"]) for each in found["approvals"]],
            [log_line_of(each) for each in found["logs"]],
        )

    def choose(
        self,
        where: Where,
        *,
        rows_max: int | None = None,
        order: str | None = None,
        open_only: bool = False,
    ) -> Iterator[Summary]:
        """The newest first, or by a search attribute, page by page."""
        checked_order(order)
        if where.group:
            raise FilterInvalid("over HTTP a list cannot be narrowed to a node group")
        params = {
            "status": str(where.status) if where.status else OPEN if open_only else None,
            "pipeline": where.pipeline,
            "owner": where.owner,
            "createdAt[gte]": _ago(where.newer_s),
            "createdAt[lt]": _ago(where.older_s),
            "order": order,
            **{f"attr.{name}": value for name, value in where.attributes.items()},
        }
        given, cursor = 0, None
        while True:
            size = PAGE_MAX if rows_max is None else min(PAGE_MAX, rows_max - given)
            found = self._calls.get("transactions", **params, limit=size, cursor=cursor)
            for each in map(summary_of, found["transactions"]):
                if open_only and each.is_final:
                    continue
                yield each
                given += 1
            cursor = found.get("nextCursor")
            if cursor is None or given == rows_max:
                return

    def retry(self, tx_id: str, *, reason: str, actor: Actor) -> ActionResult:
        try:
            found = self._calls.post("transactions", tx_id, "retry", body={"reason": reason})
        except ApiError as error:
            return ActionResult(tx_id, str(error), False)
        return ActionResult(tx_id, f"it goes on; it is {found['status']}", True)

    def act_on_many(
        self,
        action: Action,
        where: Where,
        tx_ids: Sequence[str],
        *,
        reason: str,
        actor: Actor,
        break_glass: bool = False,
    ) -> Iterator[ActionResult]:
        wanted = {
            "status": where.status and str(where.status),
            "pipeline": where.pipeline,
            "owner": where.owner,
            "olderThanSeconds": where.older_s,
            "newerThanSeconds": where.newer_s,
            "attributes": dict(where.attributes) or None,
        }
        body = {
            "action": action,
            "where": {name: value for name, value in wanted.items() if value is not None},
            "expectedCount": len(tx_ids),
            "selection": selection_of(tx_ids),
            "reason": reason,
            "breakGlass": break_glass,
        }
        found = self._calls.post("bulk-actions", body=body)
        return (ActionResult(each["txId"], each["what"], each["ok"]) for each in found["results"])

    def __getattr__(self, name: str) -> Any:
        refuse_over_http(f"the operator's {name}")


class RemoteApprovals:
    """What waits for a second person."""

    def __init__(self, calls: RemoteCalls) -> None:
        self._calls = calls
        #: Reading is the same place here.
        self.store = self

    def page(self, *, state: ApprovalState | None, rows_max: int) -> list[Approval]:
        shown = None if state is None else str(state)
        found = self._calls.get("approvals", state=shown, limit=min(rows_max, PAGE_MAX))
        return [approval_of(each) for each in found["approvals"]]

    def one(self, number: int) -> Approval:
        return approval_of(self._calls.get("approvals", str(number)))

    def approve(self, number: int, actor: Actor, *, note: str) -> Approval:
        body = {"note": note}
        return approval_of(self._calls.post("approvals", str(number), "approve", body=body))

    def reject(self, number: int, actor: Actor, *, note: str) -> Approval:
        body = {"note": note}
        return approval_of(self._calls.post("approvals", str(number), "reject", body=body))

    def clear_alert(self, actor: Actor, kind: str, subject: str, *, reason: str) -> bool:
        """Close the open alert of this kind and subject; False if there is none."""
        for each in self._calls.pages("alerts"):
            if (each["kind"], each["subject"]) == (kind, subject):
                self._calls.post("alerts", str(each["id"]), "close", body={"reason": reason})
                return True
        return False

    def __getattr__(self, name: str) -> Any:
        refuse_over_http(f"the approvals' {name}")


def summary_of(found: Mapping[str, Any]) -> Summary:
    """A transaction as the API shows it; a fence is the engine's own matter."""
    return Summary(
        tx_id=found["txId"],
        owner=found["owner"],
        external_id=found["externalId"],
        pipeline=found["pipeline"],
        version=found["version"],
        status=Status(found["status"]),
        input=found["input"],
        metadata=found["metadata"],
        output=found["output"],
        progress=found["progress"],
        note=found["note"],
        created_at=known_moment(found["createdAt"]),
        completed_at=moment(found["completedAt"]),
        fence=0,
        expires_at=moment(found["expiresAt"]),
        webhook=found["webhook"],
        sequence=found["sequence"],
        notified_at=moment(found["notifiedAt"]),
        submitted_by=found.get("submittedBy"),
        origin=found.get("origin"),
        no_return_at=moment(found["noReturnAt"]),
        forwarded_at=moment(found["forwardedAt"]),
    )


def approval_of(found: Mapping[str, Any]) -> Approval:
    return Approval(
        id=found["id"],
        action=found["action"],
        subject=found["subject"],
        params=found["params"],
        params_hash=found["paramsHash"],
        version=found["version"],
        reason=found["reason"],
        state=ApprovalState(found["state"]),
        requested_by=found["requestedBy"],
        requester=found["requester"],
        needed=found["needed"],
        role=Role(found["role"]),
        persons=tuple(found["persons"] or ()),
        break_glass=found["breakGlass"],
        created_at=known_moment(found["createdAt"]),
        expires_at=known_moment(found["expiresAt"]),
        note=found["note"],
        pipeline=found["pipeline"],
        size=found["size"],
        decided_at=moment(found["decidedAt"]),
        executed_at=moment(found["executedAt"]),
        closed_by=found["closedBy"],
        given=tuple(_vote(each) for each in found["decisions"]),
    )


def _vote(found: Mapping[str, Any]) -> Vote:
    return Vote(
        decided_by=found["by"],
        actor=found["actor"],
        decision=found["decision"],
        note=found["note"],
        created_at=known_moment(found["at"]),
    )


def in_flight_of(found: Mapping[str, Any]) -> InFlight:
    return InFlight(
        found["txId"],
        found["node"],
        found["place"],
        found["stepType"],
        moment_ms(found["since"]),
        found["orphaned"],
        found["midStep"],
    )


def _in_doubt(found: Mapping[str, Any]) -> InDoubt:
    since_ms = moment_ms(found["since"])
    return InDoubt(found["txId"], found["place"], found["stepType"], since_ms, found["why"])


def moment_ms(text: str) -> int:
    return round(known_moment(text).timestamp() * 1_000)


def _ago(seconds: float | None) -> str | None:
    return None if seconds is None else (datetime.now(UTC) - timedelta(seconds=seconds)).isoformat()
