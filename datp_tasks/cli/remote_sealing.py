"""Secrets, the key ring and rules of retention over HTTP."""

from __future__ import annotations

from datp_tasks.cli.remote_calls import Json, RemoteCalls, known_moment
from datp_tasks.errors import SecretUnknown
from datp_tasks.http.api_error import ApiError
from datp_tasks.model.actor import Actor
from datp_tasks.record.retention_rules import RetentionRule, RuleKind
from datp_tasks.record.sealed_secrets import SecretRow

#: What the API says of something that does not exist; a 404 of a proxy has no kind.
NOT_FOUND = "not-found"


class RemoteSecrets:
    """As `SealedSecrets`, as far as commands use it. Values go in, and never out."""

    def __init__(self, calls: RemoteCalls) -> None:
        self._calls = calls

    def list(self) -> list[SecretRow]:
        found = [(each, known_moment(each["changedAt"])) for each in self._calls.pages("secrets")]
        return [SecretRow(each["name"], each["key"], at, at) for each, at in found]

    def put(self, name: str, value: str, *, actor: Actor, must_exist: bool = False) -> bool:
        body = {"value": value, "mustExist": True} if must_exist else {"value": value}
        try:
            return bool(self._calls.send("PUT", "secrets", name, body=body)["new"])
        except ApiError as error:
            if error.kind == NOT_FOUND:
                raise SecretUnknown(f"there is no secret {name!r:.100}") from None
            raise

    def remove(self, name: str, *, actor: Actor) -> None:
        self._calls.send("DELETE", "secrets", name)


class RemoteRetention:
    """As `RetentionChanges`, as far as commands use it."""

    def __init__(self, calls: RemoteCalls) -> None:
        self._calls = calls

    def all(self) -> list[RetentionRule]:
        found = self._calls.pages("retention-rules", items="rules")
        return [RetentionRule(each["kind"], each["name"], each["days"]) for each in found]

    def set(
        self, rule: RetentionRule, *, actor: Actor, reason: str, break_glass: bool = False
    ) -> None:
        body = {"days": rule.days, "reason": reason, "breakGlass": break_glass}
        self._calls.send("PUT", "retention-rules", rule.kind, rule.name, body=body)

    def remove(
        self, kind: RuleKind, name: str, *, actor: Actor, reason: str, break_glass: bool = False
    ) -> bool:
        params = {"reason": reason, "breakGlass": "true" if break_glass else "false"}
        try:
            self._calls.send("DELETE", "retention-rules", kind, name, params=params)
        except ApiError as error:
            if error.kind == NOT_FOUND:
                return False
            raise
        return True


def key_ring_of(calls: RemoteCalls) -> list[Json]:
    return list(calls.get("key-ring")["keys"])
