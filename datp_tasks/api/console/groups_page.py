"""Groups and nodes: backlog and rates, values that operators change, and which workers live."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fastapi.responses import Response

from datp_tasks.api.console.confirming import Confirm, confirm_page
from datp_tasks.api.console.now_page import RATE_SLOTS, group_rows
from datp_tasks.api.console.streams import LiveView, Params
from datp_tasks.api.console.visit import Pages, Visit, problem_text, with_query
from datp_tasks.api.groups import change_group
from datp_tasks.api.problems import Problem, invalid, not_found, problem_of, status_of
from datp_tasks.api.services import Services
from datp_tasks.errors import DatpError, SubjectMoved
from datp_tasks.live.metrics import RESOLUTIONS
from datp_tasks.live.nodes import Node
from datp_tasks.model.node_groups import LIMITS, NodeGroup
from datp_tasks.record.database import translate_outage
from datp_tasks.settings import GROUP_NAME

pages = Pages()

DIGITS_MAX = 9


def read(services: Services, _: Params) -> Mapping[str, Any]:
    now_ms = services.live.server_now_ms()
    slots = services.health.metrics.series(RESOLUTIONS["fine"], now_ms // 1_000)
    recent = slots[-1 - RATE_SLOTS : -1]
    seconds = RESOLUTIONS["fine"].slot_s * max(1, len(recent))
    with translate_outage():
        decided = services.node_groups.store.list()
    rows = group_rows(services, recent, seconds, now_ms, decided=decided)
    return {
        "groups": [(each, decided.get(each["name"], NodeGroup(each["name"], {}))) for each in rows],
        "nodes": [_node(each, now_ms) for each in services.node_groups.nodes()],
    }


def read_one(services: Services, params: Params) -> Mapping[str, Any]:
    """The same of one group; one that was told nothing and has no worker is all default."""
    found, name = read(services, params), params["name"]
    own = [each for each in found["groups"] if each[1].name == name]
    return {"groups": own, "nodes": [each for each in found["nodes"] if each["group"] == name]}


def _node(node: Node, now_ms: int) -> dict[str, Any]:
    record, load = node.record, node.load
    return {
        "name": node.name,
        "group": node.group,
        "host": str(record.get("host", "")),
        "beat_s": (now_ms - _number(record.get("beatMs"), now_ms)) / 1_000,
        "up_s": (now_ms - node.joined_ms) / 1_000,
        "busy": int(_number(load.get("busy"), 0)),
        "slots": int(_number(load.get("slots"), 0)),
        "per_s": _number(load.get("transactionsPerS"), 0),
        "version": str(record.get("version") or "–"),
        "build": str(record.get("build") or ""),
        "step_types": node.step_types,
    }


def _number(value: object, instead: float) -> float:
    """What a node writes is looked at, and not believed."""
    return value if isinstance(value, int | float) else instead


PARTS = {"group-rows": "parts/group_rows.html", "node-rows": "parts/node_rows.html"}
VIEW = LiveView(name="groups", read=read, parts=PARTS)
GROUP_VIEW = LiveView(name="group", read=read_one, parts=PARTS)


@pages.page("/groups")
async def groups(visit: Visit) -> Response:
    found = await visit.run(read, visit.services, {})
    return visit.page("groups.html", title="Groups and nodes", live="view=groups", **found)


@pages.page("/groups/{name}")
async def group(visit: Visit) -> Response:
    return await _group_page(visit, _name(visit), {})


async def _group_page(
    visit: Visit,
    name: str,
    typed: Mapping[str, int | str | None],
    trouble: str = "",
    *,
    was: Mapping[str, str] | None = None,
    status: int = 200,
) -> Response:
    """The group as it is, with what the person has typed into its form.

    `was`: what the form has shown before, if it goes on from there; else it shows what is now.
    """
    found = await visit.run(read_one, visit.services, {"name": name})
    decided: NodeGroup = await visit.run(_decided, visit.services, name)
    return visit.page(
        "group.html",
        status,
        title=name,
        trouble=trouble,
        typed={**decided.values, **typed},
        was={**decided.values, **(was or {})},
        reason=visit.form.get("reason", "") if trouble else "",
        live=with_query("", {"view": "group", "name": name})[1:],
        name=name,
        decided=decided,
        limits=LIMITS,
        is_maintenance=name == visit.services.settings.maintenance_group,
        **found,
    )


@pages.action("/groups/{name}", back="/groups/{name}")
async def change(visit: Visit) -> Response:
    """Values that differ from those that the form showed; an empty field is the default again.

    What another person has changed meanwhile stays, and is not written over.
    """
    name, form = _name(visit), visit.form
    try:
        return await _change(visit, name)
    except (DatpError, Problem) as error:
        if status_of(error) != 422:
            raise
        problem = problem_of(error)
        typed = {key: form[key] for key in LIMITS if key in form}
        was = {key: form[f"was-{key}"] for key in LIMITS if f"was-{key}" in form}
        return await _group_page(visit, name, typed, problem_text(problem), was=was, status=422)


async def _change(visit: Visit, name: str) -> Response:
    reason = visit.reason()
    decided = await visit.run(_decided, visit.services, name)
    wanted = {key: _value(visit, key) for key in LIMITS if key in visit.form}
    shown = {key: _shown(visit, key, decided) for key in wanted}
    changes = {key: value for key, value in wanted.items() if value != shown[key]}
    if not changes:
        return visit.back_to(
            f"/groups/{name}", trouble="Nothing is changed: the values are as they were."
        )
    try:
        await visit.run(
            change_group,
            visit.services,
            name,
            changes,
            actor=visit.caller.actor,
            reason=reason,
            seen={key: shown[key] for key in changes},
        )
    except SubjectMoved:
        now: NodeGroup = await visit.run(_decided, visit.services, name)
        moved = [key for key in changes if shown[key] != now.values.get(key)]
        return await _group_page(visit, name, changes, _moved_text(moved, now), status=409)
    told = ", ".join(f"{k} {'default' if v is None else v}" for k, v in changes.items())
    return visit.back_to(f"/groups/{name}", f"Changed: {told}. Workers follow within seconds.")


@pages.page("/groups/{name}/stop")
async def ask_stop(visit: Visit) -> Response:
    name = _name(visit)
    decided: NodeGroup = await visit.run(_decided, visit.services, name)
    return confirm_page(
        visit,
        Confirm(
            title=f"Stop the group {name}",
            says=[
                "Its workers finish what they have and take nothing new (concurrency 0).",
                "Transactions for this group are still accepted; they wait until it is started.",
            ],
            act=f"/groups/{name}/stop",
            back=f"/groups/{name}",
            button="Stop",
            cli=f"datp groups set {name} concurrency=0 --reason '…'",
            impossible=_no_stop(visit.services, decided),
            is_danger=True,
        ),
    )


def _no_stop(services: Services, group: NodeGroup) -> str:
    if group.name == services.settings.maintenance_group:
        return "It takes the messages of beat: without it nothing is woken, archived or repaired."
    return "It is stopped already." if group.is_stopped else ""


@pages.action("/groups/{name}/stop", back="/groups/{name}")
async def stop(visit: Visit) -> Response:
    return await _set(visit, 0, "Stopped: its workers take nothing new.")


@pages.action("/groups/{name}/start", back="/groups/{name}")
async def start(visit: Visit) -> Response:
    return await _set(visit, None, "Started: its workers have the concurrency they began with.")


async def _set(visit: Visit, concurrency: int | None, said: str) -> Response:
    name = _name(visit)
    await visit.run(
        change_group,
        visit.services,
        name,
        {"concurrency": concurrency},
        actor=visit.caller.actor,
        reason=visit.reason(),
    )
    return visit.back_to(f"/groups/{name}", said)


def _name(visit: Visit) -> str:
    name = visit.part("name")
    if not GROUP_NAME.fullmatch(name):
        raise not_found("such group")
    return name


def _decided(services: Services, name: str) -> NodeGroup:
    with translate_outage():
        return services.node_groups.store.list().get(name, NodeGroup(name, {}))


def _moved_text(moved: list[str], now: NodeGroup) -> str:
    """None of them if another change has put them back by now."""
    names = " and ".join([", ".join(moved[:-1]), moved[-1]] if len(moved) > 1 else moved)
    what = f"{names} {'was' if len(moved) == 1 else 'were'}" if moved else "a value was"
    values = ", ".join(f"{key} {now.values.get(key, 'default')}" for key in moved)
    return (
        f"Nothing was stored: {what} changed after you opened this form"
        f"{f' (now: {values})' if values else ''}. The form has what you typed; what you send now "
        "replaces the values of now."
    )


def _shown(visit: Visit, key: str, decided: NodeGroup) -> int | None:
    """What the form showed; a program that does not say so has seen what is there."""
    name = f"was-{key}"
    return _value(visit, key, name) if name in visit.form else decided.values.get(key)


def _value(visit: Visit, key: str, field: str = "") -> int | None:
    text = visit.form[field or key].strip()
    if not text:
        return None
    if not text.isdecimal() or not text.isascii() or len(text) > DIGITS_MAX:
        high = LIMITS[key].high
        raise invalid([{"loc": (key,), "msg": f"write a whole number from 0 to {high}"}])
    return int(text)
