"""Ledger services, claims and batches over HTTP, with the methods that commands call."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import islice
from typing import Any

from datp_tasks.cli.remote_calls import RemoteCalls, known_moment, moment, refuse_over_http
from datp_tasks.ledger.batch_types import Claim, LedgerBatch, Service
from datp_tasks.model.actor import Actor
from datp_tasks.model.ledger_batch import BatchState

PAGE_MAX = 200


class RemoteLedger:
    """As `Ledger`, as far as commands use it."""

    def __init__(self, calls: RemoteCalls) -> None:
        self.batches = RemoteBatches(calls)
        self.claims = RemoteClaims(calls)
        self.intake = RemoteServices(calls)
        self.operator = RemoteDecisions(calls)


class RemoteClaims:
    def __init__(self, calls: RemoteCalls) -> None:
        self._calls = calls

    def claims(self, *, rows_max: int, service_id: str | None = None) -> list[Claim]:
        found = self._calls.pages("claims", service=service_id)
        return [_claim(each) for each in islice(found, rows_max)]


class RemoteServices:
    def __init__(self, calls: RemoteCalls) -> None:
        self._calls = calls

    def add_service(
        self, name: str, *, kind: str, url: str, secret: str | None = None, by: Actor
    ) -> Service:
        body = {"service": name, "kind": kind, "url": url}
        if secret is not None:
            body["secret"] = secret
        return _service(self._calls.post("services", body=body))


class RemoteBatches:
    def __init__(self, calls: RemoteCalls) -> None:
        self._calls = calls

    def services(self, *, rows_max: int) -> list[Service]:
        return [_service(each) for each in islice(self._calls.pages("services"), rows_max)]

    def find(self, service_id: str, batch_id: str) -> LedgerBatch:
        return _batch(self._calls.get("batches", service_id, batch_id))

    def list_batches(
        self,
        *,
        service_id: str | None = None,
        state: BatchState | None = None,
        with_final: bool = False,
        prefix: str = "",
        rows_max: int,
    ) -> list[LedgerBatch]:
        params = {
            "service": service_id,
            "state": state and str(state),
            "withFinal": with_final,
            "limit": PAGE_MAX,
        }
        found: list[LedgerBatch] = []
        cursor: str | None = None
        while len(found) < rows_max:
            page = self._calls.get("batches", **params, cursor=cursor)
            listed = [_batch(each) for each in page["batches"]]
            found += [each for each in listed if each.batch_id.startswith(prefix)]
            cursor = page.get("nextCursor")
            if cursor is None:
                break
        return found[:rows_max]

    def __getattr__(self, name: str) -> Any:
        refuse_over_http(f"the {name} of a batch")


class RemoteDecisions:
    """What operators decide about batches."""

    def __init__(self, calls: RemoteCalls) -> None:
        self._calls = calls

    def park(self, service_id: str, batch_id: str, *, actor: Actor, reason: str) -> BatchState:
        return self._decided("park", service_id, batch_id, reason=reason)

    def resume(self, service_id: str, batch_id: str, *, actor: Actor, reason: str) -> BatchState:
        return self._decided("resume", service_id, batch_id, reason=reason)

    def resubmit(
        self,
        service_id: str,
        batch_id: str,
        *,
        actor: Actor,
        reason: str,
        break_glass: bool = False,
    ) -> BatchState:
        _refuse_alone(break_glass)
        return self._decided("resubmit", service_id, batch_id, reason=reason)

    def resolve(
        self,
        service_id: str,
        batch_id: str,
        to: BatchState,
        *,
        actor: Actor,
        reason: str,
        break_glass: bool = False,
    ) -> BatchState:
        _refuse_alone(break_glass)
        return self._decided("resolve", service_id, batch_id, reason=reason, state=str(to))

    def _decided(self, decision: str, service_id: str, batch_id: str, **body: str) -> BatchState:
        found = self._calls.post("batches", service_id, batch_id, decision, body=body)
        return BatchState(found["state"])


def _refuse_alone(break_glass: bool) -> None:
    if break_glass:
        refuse_over_http("--break-glass for batches")


def _service(found: Mapping[str, Any]) -> Service:
    return Service(
        service_id=found["service"], kind=found["kind"], url=found["url"], secret=found["secret"]
    )


def _claim(found: Mapping[str, Any]) -> Claim:
    head_state = found["headState"]
    return Claim(
        service_id=found["service"],
        claimant=found["claimant"],
        epoch=found["epoch"],
        expiry=moment(found["expiresAt"]),
        is_live=found["isLive"],
        waiting=found["waiting"],
        head=found["head"],
        head_state=None if head_state is None else BatchState(head_state),
    )


def _batch(found: Mapping[str, Any]) -> LedgerBatch:
    return LedgerBatch(
        service_id=found["service"],
        batch_id=found["batchId"],
        # Shown to operators only.
        seq=found["position"] or 0,
        owner=found["owner"],
        state=BatchState(found["state"]),
        attempts=found["attempts"],
        resubmits=0,
        next_at=None,
        receipt=found["receipt"],
        note=found["note"],
        tx_id=found["txId"],
        created_at=known_moment(found["createdAt"]),
        final_at=moment(found["finalAt"]),
    )
