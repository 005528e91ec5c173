"""What a person does to one transaction: a page that names what will happen, then the form."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, cast, get_args

from fastapi.responses import Response

from datp_tasks.api.console.confirming import breaks_glass
from datp_tasks.api.console.request_checks import FORM_BYTES_MAX
from datp_tasks.api.console.transaction_page import can, look
from datp_tasks.api.console.visit import Pages, Visit
from datp_tasks.api.problems import Problem, invalid, not_found
from datp_tasks.errors import InputInvalid
from datp_tasks.model.payload import NotJson, parse
from datp_tasks.model.pipeline_access import PipelineAccess
from datp_tasks.model.rights import check_cancel, check_switch, check_wake
from datp_tasks.model.switch import typed_value
from datp_tasks.operator.doubt_decisions import Decision
from datp_tasks.record.database import translate_outage
from datp_tasks.record.record_types import Summary

pages = Pages()

SWITCH_CHARS_MAX = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionAction:
    """One action, as its page names it."""

    name: str
    title: str
    #: What will happen, in a sentence each; made of the transaction.
    says: Callable[[Summary], list[str]]
    #: Each can be pasted: what a shell would read as its own, as `|`, is in none.
    cli: tuple[str, ...]


def _cancel_says(tx: Summary) -> list[str]:
    return [
        f"It is {tx.status}. If no step has begun, it ends at once as cancelled.",
        "Otherwise the step that runs is finished, and every step that was done is rolled back, "
        "the last one first.",
        "This cannot be taken back.",
    ]


def _wake_says(tx: Summary) -> list[str]:
    return [
        "Its sleep ends now, and its step is run again with the same input.",
        "A step that waits for a switch may decide to sleep again.",
    ]


def _switch_says(tx: Summary) -> list[str]:
    return [
        "The switch is set. If it waits for this switch, it wakes up and goes on.",
        "A switch can be set again, but what the step does with it cannot be taken back.",
    ]


def _retry_says(tx: Summary) -> list[str]:
    return [
        "Whatever makes it go on is done now: if it sleeps it is woken, if it is queued its bell "
        "is rung again.",
    ]


def _resolve_says(tx: Summary) -> list[str]:
    return [
        "It is parked because it is not known whether its step took effect. Look at the outside "
        "system first; what you decide is believed.",
    ]


#: Decision -> what it says, and what happens then.
DECISIONS = {
    "done": ("It took effect", "the step counts as done, and the next step runs"),
    "redo": ("It did not", "the step is run again"),
    "fail": ("It failed", "what was done before is rolled back, the last step first"),
}
ACTIONS = {
    action.name: action
    for action in (
        TransactionAction(
            name="cancel",
            title="Cancel",
            says=_cancel_says,
            cli=("datp cancel {tx} --reason '…'",),
        ),
        TransactionAction(name="wake", title="Wake", says=_wake_says, cli=("datp wake {tx}",)),
        TransactionAction(
            name="switch",
            title="Set a switch of",
            says=_switch_says,
            cli=("datp switch {tx} NAME VALUE",),
        ),
        TransactionAction(
            name="retry", title="Retry", says=_retry_says, cli=("datp retry {tx} --reason '…'",)
        ),
        TransactionAction(
            name="resolve",
            title="Decide about",
            says=_resolve_says,
            cli=tuple(f"datp resolve {{tx}} --{each} --reason '…'" for each in DECISIONS),
        ),
    )
}


@pages.page("/transactions/{tx_id}/act/{action}")
async def confirm(visit: Visit) -> Response:
    """What will happen, and the form that does it."""
    action = ACTIONS.get(visit.part("action"))
    if action is None:
        raise not_found("such action")
    tx = await visit.run(look, visit.services, visit.part("tx_id"))
    return visit.page(
        "confirm.html",
        title=f"{action.title} {tx.tx_id}",
        action=action,
        tx=tx,
        says=action.says(tx),
        cli=[each.format(tx=tx.tx_id) for each in action.cli],
        is_possible=can(tx)[action.name],
        decisions=DECISIONS,
        waits_for=await visit.run(_waits_for, visit, tx.tx_id),
    )


@pages.action("/transactions/{tx_id}/cancel", back="/transactions/{tx_id}/act/cancel")
async def cancel(visit: Visit) -> Response:
    tx, access = await _about(visit)
    check_cancel(visit.caller.actor, access, tx.owner)
    after = await visit.run(
        partial(visit.services.client.cancel, tx.tx_id, visit.reason(), by=visit.caller.actor)
    )
    return _done(visit, f"Cancel is asked for; it is {after.status}.")


@pages.action("/transactions/{tx_id}/wake", back="/transactions/{tx_id}/act/wake")
async def wake(visit: Visit) -> Response:
    tx, access = await _about(visit)
    check_wake(visit.caller.actor, access, tx.owner)
    end_sleep = partial(
        visit.services.client.wake, tx.tx_id, by=visit.caller.actor, reason=visit.reason()
    )
    woken = await visit.run(end_sleep)
    return _done(visit, "It is woken." if woken else "It did not sleep any more.")


@pages.action("/transactions/{tx_id}/switch", back="/transactions/{tx_id}/act/switch")
async def set_switch(visit: Visit) -> Response:
    tx, access = await _about(visit)
    name = visit.form.get("name", "").strip()
    if not name or len(name) > SWITCH_CHARS_MAX:
        raise invalid([{"loc": ("name",), "msg": "name the switch"}])
    check_switch(visit.caller.actor, access, tx.owner, name)
    try:
        value = typed_value(visit.form.get("value", ""))
    except InputInvalid as error:
        raise invalid([{"loc": ("value",), "msg": str(error)}]) from None
    put = partial(
        visit.services.client.set_switch,
        tx.tx_id,
        name,
        value,
        by=visit.caller.actor,
        reason=visit.reason(),
    )
    woken = await visit.run(put)
    return _done(visit, f"The switch {name} is set{', and it woke up' if woken else ''}.")


@pages.action("/transactions/{tx_id}/retry", back="/transactions/{tx_id}/act/retry")
async def retry(visit: Visit) -> Response:
    tx, _ = await _about(visit)
    act = partial(
        visit.services.operator.retry,
        tx.tx_id,
        reason=visit.reason(),
        actor=visit.caller.actor,
    )
    done = await visit.run(act)
    if not done.ok:
        raise Problem(409, "transaction-busy", done.what)
    return _done(visit, f"Retried: {done.what}.")


@pages.action("/transactions/{tx_id}/resolve", back="/transactions/{tx_id}/act/resolve")
async def resolve(visit: Visit) -> Response:
    tx, _ = await _about(visit)
    decision = visit.form.get("decision", "")
    if decision not in get_args(Decision):
        raise invalid([{"loc": ("decision",), "msg": "choose what became of the step"}])
    output = _output(visit.form.get("output", ""))
    decide = partial(
        visit.services.operator.resolve,
        tx.tx_id,
        cast(Decision, decision),
        reason=visit.reason(),
        output=output,
        actor=visit.caller.actor,
        break_glass=breaks_glass(visit),
    )
    await visit.run(decide)
    return _done(visit, f"Decided: {DECISIONS[decision][1]}.")


def _output(text: str) -> dict[str, Any] | None:
    if not text.strip():
        return None
    try:
        found = parse(text, what="the output", bytes_max=FORM_BYTES_MAX)
    except NotJson as error:
        raise invalid([{"loc": ("output",), "msg": str(error)}]) from None
    if not isinstance(found, dict):
        raise invalid([{"loc": ("output",), "msg": "an output is a JSON object"}])
    return found


async def _about(visit: Visit) -> tuple[Summary, PipelineAccess]:
    services = visit.services
    tx: Summary = await visit.run(look, services, visit.part("tx_id"))

    def pinned() -> PipelineAccess:
        with translate_outage():
            return services.catalogue.version(tx.pipeline, tx.version).access

    return tx, await visit.run(pinned)


def _waits_for(visit: Visit, tx_id: str) -> str:
    """The switch that it waits for, so that a person need not type it."""
    found = visit.services.live.named_many([tx_id], ("wakeSwitch",))
    return found[0].get("wakeSwitch", "")


def _done(visit: Visit, said: str) -> Response:
    return visit.back_to(f"/transactions/{visit.part('tx_id')}", said)
