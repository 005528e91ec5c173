"""Mappings that pipelines share: their versions, what differs between them, commit and use."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, TypeVar
from urllib.parse import quote

from fastapi.responses import Response

from datp_tasks.api.console.confirming import Confirm, confirm_page
from datp_tasks.api.console.streams import LiveView, Params
from datp_tasks.api.console.version_diff import compared, diff_page
from datp_tasks.api.console.visit import Pages, Visit, with_query
from datp_tasks.api.problems import not_found
from datp_tasks.api.services import Services
from datp_tasks.errors import DatpError, MappingUnknown
from datp_tasks.model.actor import Role
from datp_tasks.pipelines.mapping_store import MappingStore, Republished, StoredMapping
from datp_tasks.pipelines.version_store import PipelineStore
from datp_tasks.pipelines.yaml_text import dump
from datp_tasks.record.database import translate_outage

pages = Pages()

T = TypeVar("T")


def read(services: Services, _: Params) -> Mapping[str, Any]:
    return {"rows": _stored(services, services.pipelines, lambda store: store.list())}


def read_one(services: Services, params: Params) -> Mapping[str, Any]:
    name = params["name"]
    return {
        "name": name,
        "versions": _stored(services, services.pipelines, lambda store: store.versions(name)),
    }


VIEW = LiveView(
    name="mappings", read=read, parts={"mapping-rows": "parts/mapping_rows.html"}, every_s=3.0
)
MAPPING_VIEW = LiveView(
    name="mapping",
    read=read_one,
    parts={"mapping-version-rows": "parts/mapping_version_rows.html"},
    every_s=3.0,
)


@pages.page("/mappings")
async def mappings(visit: Visit) -> Response:
    found = await visit.run(read, visit.services, {})
    return visit.page("mappings.html", title="Shared mappings", live="view=mappings", **found)


@pages.page("/mappings/{name}")
async def mapping(visit: Visit) -> Response:
    """One mapping with one version open: the wanted one, else the one in use, else the newest."""
    name = visit.part("name")
    wanted = visit.request.query_params.get("version") or None
    shown = await visit.run(_look, visit.services, name, wanted)
    found = await visit.run(read_one, visit.services, {"name": name})
    return visit.page(
        "mapping.html",
        title=name,
        live=with_query("", {"view": "mapping", "name": name})[1:],
        shown=shown,
        yaml=_yaml(shown),
        named_by=await visit.run(_named_by, visit.services, name),
        may_admin=visit.has(Role.ADMIN),
        **found,
    )


@pages.page("/mappings/{name}/diff")
async def compare_mappings(visit: Visit) -> Response:
    """What changed from one version to another."""
    name = visit.part("name")
    found = await visit.run(read_one, visit.services, {"name": name})
    # Only versions that exist come into the commands: the query is written by others.
    both = [await visit.run(_look, visit.services, name, each) for each in compared(visit) if each]
    return diff_page(
        visit,
        home=place_of(name),
        versions=found["versions"],
        unified=_differs(*both) if both else (),
        commands=[f"datp mappings show {name} --version {each.version}" for each in both],
    )


def _differs(one: StoredMapping, other: StoredMapping) -> Iterable[str]:
    return difflib.unified_diff(_yaml(one).splitlines(), _yaml(other).splitlines(), lineterm="")


@pages.action(
    "/mappings/{name}/versions/{version}/commit",
    role=Role.ADMIN,
    back="/mappings/{name}?version={version}",
)
async def commit_mapping(visit: Visit) -> Response:
    name, version = visit.part("name"), visit.part("version")
    comment = visit.reason("comment")
    work = partial(MappingStore.commit, name=name, version=version, comment=comment)
    done: str = await visit.run(_stored, visit.services, _own(visit), work)
    return visit.back_to(place_of(name, done), f"Version {done} is committed.")


@pages.page("/mappings/{name}/versions/{version}/use")
async def ask_use_mapping(visit: Visit) -> Response:
    name, version = visit.part("name"), visit.part("version")
    shown: StoredMapping = await visit.run(_look, visit.services, name, version)
    named_by: list[str] = await visit.run(_named_by, visit.services, name)
    full = shown.version
    return confirm_page(
        visit,
        Confirm(
            title=f"Use version {full} of the mapping {name}",
            says=[
                "Pipelines that are applied from now on get this version.",
                f"Each pipeline in use that names it gets a new version, which is put into use: "
                f"{', '.join(named_by)}."
                if named_by
                else "No pipeline in use names it, so nothing else changes.",
                "The policy may want a second person for each of these: then an approval is asked "
                "for, and that pipeline stays as it is until that person agrees.",
                "Transactions on their way keep the mapping that they began with.",
            ],
            act=f"/mappings/{quote(name)}/versions/{full}/use",
            back=place_of(name, full),
            button="Use this version",
            cli=f"datp mappings use {name} {full} --reason '…'",
            role=Role.ADMIN,
        ),
    )


@pages.action(
    "/mappings/{name}/versions/{version}/use",
    role=Role.ADMIN,
    back="/mappings/{name}/versions/{version}/use",
)
async def use_mapping(visit: Visit) -> Response:
    name, version = visit.part("name"), visit.part("version")
    work = partial(MappingStore.use, name=name, version=version, reason=visit.reason())
    made: list[Republished] = await visit.run(_stored, visit.services, _own(visit), work)
    told = [
        f"{each.pipeline} waits for approval {each.approval_id}"
        if each.approval_id
        else f"{each.pipeline} has version {each.version}"
        for each in made
    ]
    said = f"Version {version} is in use" + (f": {'; '.join(told)}." if told else ".")
    return visit.back_to(place_of(name), said)


def _yaml(stored: StoredMapping) -> str:
    return dump(stored.definition.to_mapping())


def _look(services: Services, name: str, version: str | None) -> StoredMapping:
    found: StoredMapping = _stored(
        services, services.pipelines, lambda store: store.show(name, version)
    )
    return found


def _named_by(services: Services, name: str) -> list[str]:
    """The pipelines in use that get a new version with another one of this mapping."""
    with translate_outage():
        in_use = [(each.name, each.version_in_use) for each in services.pipelines.list()]
        return [
            pipeline for pipeline, version in in_use if name in _names(services, pipeline, version)
        ]


def _names(services: Services, pipeline: str, version: str | None) -> Sequence[str]:
    """The mappings that a version names; the process remembers versions that it has read."""
    if version is None:
        return ()
    try:
        return tuple(services.catalogue.version(pipeline, version).mapping_names)
    except DatpError:
        # Altered in the database: putting a mapping into use says so.
        return ()


def _own(visit: Visit) -> PipelineStore:
    return visit.services.pipelines.acting(visit.caller.actor)


def _stored(services: Services, own: PipelineStore, work: Callable[[MappingStore], T]) -> T:
    store = MappingStore(services.transactions.record.engine, own)
    with translate_outage():
        try:
            return work(store)
        except MappingUnknown as error:
            raise not_found(f"such mapping or version: {error}") from None


def place_of(name: str, version: str = "") -> str:
    return with_query(f"/mappings/{quote(name)}", {"version": version})
