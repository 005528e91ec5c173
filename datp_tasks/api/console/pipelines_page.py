"""Pipelines: what is in use, versions and what differs between them, and putting them into use."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, TypeVar
from urllib.parse import quote

from fastapi.responses import Response

from datp_tasks.api.console.case_runs import ShownCase
from datp_tasks.api.console.confirming import Confirm, breaks_glass, confirm_page
from datp_tasks.api.console.streams import LiveView, Params
from datp_tasks.api.console.version_diff import compared, diff_page
from datp_tasks.api.console.visit import Pages, Visit, with_query
from datp_tasks.api.problems import not_found
from datp_tasks.api.services import Services
from datp_tasks.errors import PipelineUnknown
from datp_tasks.model.actor import Role
from datp_tasks.pipelines.records import PipelineInfo, StoredVersion, VersionInfo
from datp_tasks.pipelines.version_store import PipelineStore
from datp_tasks.pipelines.yaml_text import dump
from datp_tasks.record.database import translate_outage
from datp_tasks.record.listing import VersionCounts

pages = Pages()

T = TypeVar("T")
#: Of what goes on and of what ended last; counted in some milliseconds, whatever is stored.
COUNTED_MAX = 5_000


def read(services: Services, _: Params) -> Mapping[str, Any]:
    with translate_outage():
        found = services.pipelines.list()
        counts = services.transactions.listing.by_version(COUNTED_MAX)
    return {
        "rows": [(each, _of_pipeline(counts, each)) for each in found],
        "counted_max": COUNTED_MAX,
    }


def _of_pipeline(
    counts: Mapping[tuple[str, str], VersionCounts], info: PipelineInfo
) -> VersionCounts:
    own = [each for (name, _), each in counts.items() if name == info.name]
    return VersionCounts(
        in_flight=sum(each.in_flight for each in own),
        ended=sum(each.ended for each in own),
        unsuccessful=sum(each.unsuccessful for each in own),
    )


def read_one(services: Services, params: Params) -> Mapping[str, Any]:
    name = params["name"]
    versions = _stored(services.pipelines, lambda store: store.versions(name))
    with translate_outage():
        head = services.pipelines.head(name)
        counts = services.transactions.listing.by_version(COUNTED_MAX)
    return {
        "name": name,
        "is_disabled": head is not None and head.disabled,
        "in_use": head.in_use if head is not None else None,
        "versions": [(each, counts.get((name, each.version), NO_COUNTS)) for each in versions],
        "counted_max": COUNTED_MAX,
    }


NO_COUNTS = VersionCounts()
NO_RESULTS: Mapping[str, ShownCase] = {}
VIEW = LiveView(
    name="pipelines", read=read, parts={"pipeline-rows": "parts/pipeline_rows.html"}, every_s=3.0
)
VERSIONS_VIEW = LiveView(
    name="pipeline",
    read=read_one,
    parts={"version-rows": "parts/version_rows.html"},
    every_s=3.0,
)


@pages.page("/pipelines")
async def pipelines(visit: Visit) -> Response:
    found = await visit.run(read, visit.services, {})
    return visit.page("pipelines.html", title="Pipelines", live="view=pipelines", **found)


@pages.page("/pipelines/{name}")
async def pipeline(visit: Visit) -> Response:
    name = visit.part("name")
    wanted = visit.request.query_params.get("version") or None
    return await show_version(visit, await visit.run(look, visit.services, name, wanted))


async def show_version(
    visit: Visit, stored: StoredVersion, *, results: Mapping[str, ShownCase] = NO_RESULTS
) -> Response:
    """The page of a pipeline with one version open; with what came of its cases, if they ran."""
    name = stored.info.name
    found = await visit.run(read_one, visit.services, {"name": name})
    return visit.page(
        "pipeline.html",
        title=name,
        live=with_query("", {"view": "pipeline", "name": name})[1:],
        shown=stored.info,
        definition=stored.definition,
        yaml=dump(stored.definition.to_mapping()),
        may_admin=visit.has(Role.ADMIN),
        results=results,
        **found,
    )


@pages.page("/pipelines/{name}/diff")
async def compare(visit: Visit) -> Response:
    """What changed from one version to another."""
    name, store = visit.part("name"), visit.services.pipelines
    one, other = compared(visit)
    versions = await visit.run(_stored, store, lambda store: store.versions(name))
    if not one:
        return diff_page(visit, home=place_of(name), versions=versions)
    work = partial(PipelineStore.diff, name=name, a=one, b=other)
    unified: str = await visit.run(_stored, store, work)
    return diff_page(
        visit,
        home=place_of(name),
        versions=versions,
        unified=unified.splitlines(),
        commands=[f"datp pipelines diff {name} {one} {other}"],
    )


@pages.action(
    "/pipelines/{name}/versions/{version}/commit",
    role=Role.ADMIN,
    back="/pipelines/{name}?version={version}",
)
async def commit(visit: Visit) -> Response:
    name, version = visit.part("name"), visit.part("version")
    work = partial(
        PipelineStore.commit, name=name, version=version, comment=visit.reason("comment")
    )
    info: VersionInfo = await visit.run(_stored, _own(visit), work)
    return visit.back_to(place_of(name, info.version), f"Version {info.version} is committed.")


@pages.page("/pipelines/{name}/versions/{version}/use")
async def ask_use(visit: Visit) -> Response:
    name, version = visit.part("name"), visit.part("version")
    stored: StoredVersion = await visit.run(look, visit.services, name, version)
    full = stored.info.version
    return confirm_page(
        visit,
        Confirm(
            title=f"Use version {full} of {name}",
            says=[
                "Transactions that are accepted from now on get this version. Those on their way "
                "stay with the version that they have.",
                "If the pipeline is disabled, it takes transactions again.",
                "The policy may want a second person: then an approval is asked for, and nothing "
                "changes until that person agrees.",
            ],
            act=f"/pipelines/{quote(name)}/versions/{full}/use",
            back=place_of(name, full),
            button="Use this version",
            cli=f"datp pipelines use {name} {full}",
            role=Role.ADMIN,
            impossible="This version is in use already." if stored.info.in_use else "",
            is_guarded=True,
        ),
    )


@pages.action(
    "/pipelines/{name}/versions/{version}/use",
    role=Role.ADMIN,
    back="/pipelines/{name}/versions/{version}/use",
)
async def use(visit: Visit) -> Response:
    name = visit.part("name")
    work = partial(
        PipelineStore.use,
        name=name,
        version=visit.part("version"),
        reason=visit.reason(),
        break_glass=breaks_glass(visit),
    )
    info: VersionInfo = await visit.run(_stored, _own(visit), work)
    return visit.back_to(place_of(name), f"New transactions get version {info.version}.")


@pages.page("/pipelines/{name}/disable")
async def ask_disable(visit: Visit) -> Response:
    name = visit.part("name")
    await visit.run(look, visit.services, name, None)
    return confirm_page(
        visit,
        Confirm(
            title=f"Disable {name}",
            says=[
                "The pipeline takes no new transactions: clients are refused, and so are pipelines "
                "that call it.",
                "Transactions on their way go on. Using a version again takes this back.",
            ],
            act=f"/pipelines/{quote(name)}/disable",
            back=place_of(name),
            button="Disable",
            cli=f"datp pipelines disable {name}",
            role=Role.ADMIN,
            is_danger=True,
        ),
    )


@pages.action("/pipelines/{name}/disable", role=Role.ADMIN, back="/pipelines/{name}/disable")
async def disable(visit: Visit) -> Response:
    name = visit.part("name")
    work = partial(PipelineStore.disable, name=name, reason=visit.reason())
    await visit.run(_stored, _own(visit), work)
    return visit.back_to(place_of(name), f"{name} takes no new transactions.")


def look(services: Services, name: str, version: str | None) -> StoredVersion:
    found: StoredVersion = _stored(services.pipelines, lambda store: store.show(name, version))
    return found


def _own(visit: Visit) -> PipelineStore:
    return visit.services.pipelines.acting(visit.caller.actor)


def _stored(store: PipelineStore, work: Callable[[PipelineStore], T]) -> T:
    with translate_outage():
        try:
            return work(store)
        except PipelineUnknown as error:
            raise not_found(f"such pipeline or version: {error}") from None


def place_of(name: str, version: str = "") -> str:
    return with_query(f"/pipelines/{quote(name)}", {"version": version})
