"""What an actor may do: its role, its grants, and what the pipeline says."""

from __future__ import annotations

from dataclasses import replace

from datp_tasks.errors import NotGranted
from datp_tasks.model.actor import Actor, Role
from datp_tasks.model.grants import GrantKind, Grants
from datp_tasks.model.pipeline_access import PipelineAccess, Who

NO_GRANTS = Grants(())


def check_submit(actor: Actor, pipeline: str, access: PipelineAccess, owner: str) -> None:
    """Raise NotGranted unless this actor may start a transaction of this pipeline and owner."""
    if actor.grants is None and actor.has(Role.ADMIN):
        return
    if actor.owner != owner:
        raise NotGranted("This key may not start a transaction in the name of another owner.")
    if not _by_grants(actor, access.submit, "submit", pipeline):
        raise _refused(f"start {pipeline}", f"submit:{pipeline}")


def check_cancel(actor: Actor, access: PipelineAccess, owner: str) -> None:
    what = "cancel a transaction of this pipeline"
    _check_act(_towards(actor, owner), access.cancel, "cancel", "", what)


def check_wake(actor: Actor, access: PipelineAccess, owner: str) -> None:
    what = "wake a transaction of this pipeline"
    _check_act(_towards(actor, owner), access.wake, "wake", "", what)


def check_switch(actor: Actor, access: PipelineAccess, owner: str, name: str) -> None:
    what = f"set the switch {name!r:.50} of this pipeline"
    _check_act(_towards(actor, owner), access.of_switch(name), "switch", name, what)


def check_read(actor: Actor) -> None:
    if not actor.is_operator and actor.grants is not None and not actor.grants.allows("read"):
        raise _refused("read", "read")


def check_batch(actor: Actor, service: str) -> None:
    """Bytes go into a ledger as they are, so that needs a grant, always."""
    if actor.grants is None and actor.has(Role.ADMIN):
        return
    if actor.grants is None or not actor.grants.allows("batch", service):
        raise _refused(f"hand in batches for {service!r:.50}", "batch:<service>")


def check_read_batches(actor: Actor, service: str | None) -> None:
    if actor.is_operator:
        return
    # Without a service all are meant, so the grant must be for all.
    if actor.grants is None or not actor.grants.allows("batch", service or "*"):
        raise _refused("look at batches", "batch:<service>")


def check_endpoints(actor: Actor) -> None:
    """An endpoint gets the payloads of all transactions, so that is its owner's, or an admin's."""
    if actor.is_operator:
        if not actor.has(Role.ADMIN):
            raise NotGranted(f"This needs a key with the role {Role.ADMIN}.")
    elif actor.grants is not None and not actor.grants.allows("endpoints"):
        raise _refused("manage webhook endpoints", "endpoints")


def sees_payloads(actor: Actor) -> bool:
    """A viewer sees that and when something happened, not what is in it; so does a client's key
    whose grants let it act, but not read."""
    if actor.is_operator:
        return actor.has(Role.OPERATOR)
    return actor.grants is None or actor.grants.allows("read")


def _towards(actor: Actor, owner: str) -> Actor:
    """Grants are for what is its owner's: beside a role they do not reach what it only sees."""
    return actor if actor.owner == owner else replace(actor, grants=NO_GRANTS)


def _check_act(actor: Actor, who: Who, kind: GrantKind, name: str, what: str) -> None:
    if not (actor.has(Role.OPERATOR) or _by_grants(actor, who, kind, name)):
        raise _refused(what, f"{kind}:{name}" if name else kind)


def _by_grants(actor: Actor, who: Who, kind: GrantKind, name: str) -> bool:
    if actor.grants is not None:
        return who != "operator" and actor.grants.allows(kind, name)
    return who == "client" and not actor.is_operator


def _refused(what: str, grant: str) -> NotGranted:
    return NotGranted(f"This key may not {what}; it lacks the grant {grant}, or a role.")
