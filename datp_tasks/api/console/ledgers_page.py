"""Ledgers: services and who has claimed them, batches, and what operators decide about one."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from functools import partial
from typing import Any
from urllib.parse import quote

from fastapi.responses import Response

from datp_tasks.api.console.confirming import Confirm, breaks_glass, confirm_page
from datp_tasks.api.console.streams import LiveView, Params
from datp_tasks.api.console.visit import Pages, Visit, problem_text, with_query
from datp_tasks.api.problems import Problem, invalid, not_found, problem_of
from datp_tasks.api.services import Services
from datp_tasks.errors import BatchUnknown, ServiceInvalid, SubjectMoved
from datp_tasks.ledger.batch_operator import ALLOWED, GUARDED
from datp_tasks.ledger.batch_types import LedgerBatch, SeenService, Service
from datp_tasks.ledger.kinds import KINDS
from datp_tasks.model.actor import Role
from datp_tasks.model.ledger_batch import BatchState
from datp_tasks.record.database import translate_outage

pages = Pages()

SERVICES_MAX = 200
ROWS_MAX = 100
TEXT_CHARS_MAX = 200
URL_CHARS_MAX = 2_048
#: As the URL has them, in the order of the form.
FILTERS = ("service", "state", "ended")
#: What a person can do to a batch -> the button, and what will happen.
ACTIONS: dict[str, tuple[str, list[str]]] = {
    "park": (
        "Park",
        [
            "The batch stays where it is until it is resumed, and with it every batch of this "
            "service that comes after it.",
        ],
    ),
    "resume": (
        "Resume",
        [
            "The batch goes on. If the ledger may have it already, the ledger is asked first, so "
            "that it is not executed twice.",
        ],
    ),
    "resubmit": (
        "Resubmit",
        [
            "The same bytes are sent again without asking the ledger first. If the ledger has "
            "them already and does not drop duplicates, they take effect twice.",
            "Look at the ledger first. This cannot be taken back.",
        ],
    ),
    "resolve": (
        "Resolve",
        [
            "The batch ends as you found it to be at the ledger; nothing is sent. The "
            "transaction that waits for it goes on with that, and so does the next batch.",
            "What you say is believed. This cannot be taken back.",
        ],
    ),
}
TRUTHS = {
    "COMMITTED": "the ledger has it for ever, and what it says took effect",
    "INVALID": "the ledger refused it, and nothing took effect",
}


def read(services: Services, params: Params) -> Mapping[str, Any]:
    given = given_filters(params)
    ledger = services.ledger
    state = given.get("state")
    with translate_outage():
        now_ms = services.transactions.record.server_now_ms()
        known = ledger.batches.services(rows_max=SERVICES_MAX + 1)
        claims = ledger.claims.claims(rows_max=SERVICES_MAX)
        batches = ledger.batches.list_batches(
            service_id=given.get("service"),
            state=BatchState(state) if state else None,
            with_final="ended" in given,
            rows_max=ROWS_MAX + 1,
        )
    by_service = {each.service_id: each for each in claims}
    return {
        "services": [(each, by_service.get(each.service_id)) for each in known[:SERVICES_MAX]],
        "more_services": len(known) > SERVICES_MAX,
        "services_max": SERVICES_MAX,
        "now_ms": now_ms,
        "batches": batches[:ROWS_MAX],
        "has_more": len(batches) > ROWS_MAX,
        "rows_max": ROWS_MAX,
        "given": given,
    }


def given_filters(params: Mapping[str, str]) -> dict[str, str]:
    given = {name: params[name].strip()[:TEXT_CHARS_MAX] for name in FILTERS if params.get(name)}
    if given.get("state") not in set(BatchState):
        given.pop("state", None)
    return {name: value for name, value in given.items() if value}


VIEW = LiveView(
    name="ledgers",
    read=read,
    parts={"ledger-services": "parts/ledger_services.html", "batch-rows": "parts/batch_rows.html"},
    every_s=2.0,
)


@pages.page("/ledgers")
async def ledgers(visit: Visit) -> Response:
    given = given_filters(visit.request.query_params)
    found = await visit.run(read, visit.services, given)
    live = with_query("", {"view": "ledgers", **given})[1:]
    return visit.page(
        "ledgers.html",
        title="Ledgers",
        live=live,
        states=[str(each) for each in BatchState],
        **found,
    )


@pages.page("/services/new")
async def ask_service(visit: Visit) -> Response:
    """A form for a new service, or for another address of one that exists."""
    name = visit.request.query_params.get("service", "")[:TEXT_CHARS_MAX]
    known = await visit.run(_service, visit.services, name) if name else None
    return _service_form(visit, {} if known is None else _prefilled(known))


@pages.action("/services", role=Role.ADMIN)
async def add_service(visit: Visit) -> Response:
    """As POST /v1/services; what exists is replaced only by a form that showed it as it is."""
    form = visit.form
    given = {name: form.get(name, "").strip() for name in ("service", "kind", "url", "secret")}
    actor = visit.caller.actor

    def put(reason: str, known: Service | None) -> Service:
        with translate_outage():
            return visit.services.ledger.intake.add_service(
                given["service"],
                kind=given["kind"],
                url=given["url"],
                secret=given["secret"] or None,
                by=actor,
                reason=reason,
                seen=SeenService(known),
            )

    def as_it_is(known: Service) -> Response:
        # What was not typed has the values of now: sending it again takes back no other change.
        typed = {
            name: given[name]
            for name in ("url", "secret")
            if given[name] != form.get(f"was-{name}", "")
        }
        typed["reason"] = form.get("reason", "")
        is_changed = form.get("known") == known.service_id
        trouble = _changed(known) if is_changed else _exists(known)
        return _service_form(visit, _prefilled(known) | typed, trouble, 409)

    try:
        if max(map(len, given.values())) > URL_CHARS_MAX:
            text = f"at most {URL_CHARS_MAX:,} characters fit into a field"
            raise invalid([{"loc": ("service",), "msg": text}])
        known = await visit.run(_service, visit.services, given["service"])
        if known is not None and form.get("seen") != _mark(known):
            return as_it_is(known)
        made = await visit.run(put, visit.reason(), known)
    except SubjectMoved:
        # Between the look and the write.
        known = await visit.run(_service, visit.services, given["service"])
        if known is None:
            raise
        return as_it_is(known)
    except (ServiceInvalid, Problem) as error:
        problem = problem_of(error)
        if problem.status_code != 422:
            raise
        return _service_form(visit, form, problem_text(problem))
    said = f"Batches of {made.service_id} go to {made.url}."
    return visit.back_to(with_query("/ledgers", {"service": made.service_id}), said)


def _service(services: Services, name: str) -> Service | None:
    with translate_outage():
        return next(iter(services.ledger.batches.services([name], rows_max=1)), None)


def _prefilled(known: Service) -> dict[str, str]:
    """The form of a service that exists; `seen` says as what the person has seen it."""
    name = known.service_id
    given = {"service": name, "kind": known.kind, "url": known.url, "secret": known.secret or ""}
    was = {"was-url": known.url, "was-secret": known.secret or ""}
    return given | was | {"known": name, "seen": _mark(known)}


def _mark(known: Service) -> str:
    """Another one for every service, and after every change of it."""
    text = json.dumps([known.service_id, known.kind, known.url, known.secret])
    return hashlib.sha256(text.encode()).hexdigest()[:32]


def _exists(known: Service) -> str:
    return f"{known.service_id} exists: {_goes_to(known)}"


def _changed(known: Service) -> str:
    return f"{known.service_id} was changed after you opened this form: {_goes_to(known)}"


def _goes_to(known: Service) -> str:
    secret = f"the secret {known.secret}" if known.secret else "no secret"
    return (
        f"its batches go to {known.url} with {secret}. Nothing was stored; what you send now "
        "replaces the address and the secret."
    )


def _service_form(
    visit: Visit, given: Mapping[str, str], trouble: str = "", status: int = 422
) -> Response:
    known = given.get("known")
    return visit.page(
        "service_new.html",
        status if trouble else 200,
        title=f"Change the ledger service {known}" if known else "Register a ledger service",
        given=given,
        kinds=sorted(KINDS),
        trouble=trouble,
        may_admin=visit.has(Role.ADMIN),
    )


def read_one(services: Services, params: Params) -> Mapping[str, Any]:
    service, batch_id = params["service"], params["batch"]
    with translate_outage():
        batch = _find(services, service, batch_id)
        attempts = services.ledger.batches.attempts(service, batch_id)
        sightings = services.ledger.batches.sightings(service, batch_id)
    return {"batch": batch, "attempts": attempts, "sightings": sightings}


BATCH_VIEW = LiveView(name="batch", read=read_one, parts={"batch": "parts/batch.html"}, every_s=2.0)


@pages.page("/ledgers/{service}/{batch}")
async def batch(visit: Visit) -> Response:
    asked = {"service": visit.part("service"), "batch": visit.part("batch")}
    found = await visit.run(read_one, visit.services, asked)
    return visit.page(
        "batch.html",
        title="Batch",
        live=with_query("", {"view": "batch", **asked})[1:],
        place=_place(visit),
        can=[name for name in ACTIONS if found["batch"].state in ALLOWED[name]],
        actions=ACTIONS,
        **found,
    )


@pages.page("/ledgers/{service}/{batch}/act/{action}")
async def confirm(visit: Visit) -> Response:
    action, service, batch_id = visit.part("action"), visit.part("service"), visit.part("batch")
    if action not in ACTIONS:
        raise not_found("such action")
    found: LedgerBatch = await visit.run(_find, visit.services, service, batch_id)
    button, says = ACTIONS[action]
    may_be = " or ".join(sorted(ALLOWED[action]))
    # One command for each: a shell would take a bar between them for its own.
    ways = [f"--as {each} " for each in TRUTHS] if action == "resolve" else [""]
    return confirm_page(
        visit,
        Confirm(
            title=f"{button} a batch of {service}",
            says=[
                f"It is about the batch {found.batch_id}, number {found.seq} of {service}, of the "
                f"owner {found.owner}; it is {found.state}.",
                *says,
            ],
            act=f"{_place(visit)}/{action}",
            back=_place(visit),
            button=f"{button} the batch",
            cli=[f"datp batches {action} {service} {batch_id} {way}--reason '…'" for way in ways],
            impossible=""
            if found.state in ALLOWED[action]
            else f"It is {found.state}; for this it must be {may_be}.",
            choices=TRUTHS if action == "resolve" else {},
            is_guarded=f"batch.{action}" in GUARDED,
            is_danger=action in ("resubmit", "resolve"),
        ),
    )


@pages.action("/ledgers/{service}/{batch}/park", back="/ledgers/{service}/{batch}/act/park")
async def park(visit: Visit) -> Response:
    return await _act(visit, "park", reason=visit.reason())


@pages.action("/ledgers/{service}/{batch}/resume", back="/ledgers/{service}/{batch}/act/resume")
async def resume(visit: Visit) -> Response:
    return await _act(visit, "resume", reason=visit.reason())


@pages.action("/ledgers/{service}/{batch}/resubmit", back="/ledgers/{service}/{batch}/act/resubmit")
async def resubmit(visit: Visit) -> Response:
    return await _act(visit, "resubmit", reason=visit.reason(), break_glass=breaks_glass(visit))


@pages.action("/ledgers/{service}/{batch}/resolve", back="/ledgers/{service}/{batch}/act/resolve")
async def resolve(visit: Visit) -> Response:
    decision = visit.form.get("decision", "")
    if decision not in TRUTHS:
        raise invalid([{"loc": ("decision",), "msg": "choose what became of the batch"}])
    return await _act(
        visit,
        "resolve",
        to=BatchState(decision),
        reason=visit.reason(),
        break_glass=breaks_glass(visit),
    )


async def _act(visit: Visit, action: str, **given: Any) -> Response:
    service, batch_id = visit.part("service"), visit.part("batch")
    operator = visit.services.ledger.operator
    act = partial(getattr(operator, action), service, batch_id, actor=visit.caller.actor, **given)

    def do() -> BatchState:
        with translate_outage():
            _find(visit.services, service, batch_id)
            found: BatchState = act()
            return found

    state = await visit.run(do)
    return visit.back_to(_place(visit), f"Done; it is {state}.")


def _place(visit: Visit) -> str:
    return f"/ledgers/{quote(visit.part('service'), '')}/{quote(visit.part('batch'), '')}"


def _find(services: Services, service: str, batch_id: str) -> LedgerBatch:
    with translate_outage():
        try:
            return services.ledger.batches.find(service, batch_id)
        except BatchUnknown:
            raise not_found("such batch") from None
