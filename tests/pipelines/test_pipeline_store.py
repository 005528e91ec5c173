"""The record of pipelines: versions, the one in use, and its copy in Redis."""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, cast

import pytest
from redis import Redis
from redis.backoff import NoBackoff
from redis.retry import Retry
from sqlalchemy import Engine, text

from datp_tasks.errors import PipelineInvalid, PipelineUnknown, VersionMismatch
from datp_tasks.live.keys import Keys
from datp_tasks.live.pipeline_cache import Head, PipelineCache
from datp_tasks.model.actor import Actor
from datp_tasks.model.pipeline import PipelineDefinition
from datp_tasks.pipelines.version_store import PipelineStore
from tests.support.pipeline_store import make_store

Define = Callable[..., PipelineDefinition]


def run(engine: Engine, statement: str, **values: object) -> Any:
    with engine.begin() as connection:
        result = connection.execute(text(statement), values)
        return result.all() if result.returns_rows else None


def cached(redis: Redis, keys: Keys, name: str = "transfer") -> dict[str, str]:
    found = cast("dict[Any, Any]", redis.hgetall(keys.pipeline(name)))

    def plain(value: Any) -> str:
        return value.decode() if isinstance(value, bytes) else str(value)

    return {plain(key): plain(value) for key, value in found.items()}


def head_in_sql(engine: Engine, name: str = "transfer") -> dict[str, str]:
    ((in_use, disabled),) = run(
        engine, "SELECT version_in_use, disabled FROM pipeline WHERE name = :name", name=name
    )
    return {"inUse": in_use or "", "disabled": "1" if disabled else "0"}


def test_a_version_goes_from_draft_to_committed_to_in_use(
    pipeline_store: PipelineStore, redis: Redis, keys: Keys, define: Define
) -> None:
    definition = define()
    applied = pipeline_store.apply(definition)
    assert (applied.version, applied.is_new, applied.state) == (definition.version, True, "draft")
    assert cached(redis, keys) == {"inUse": "", "disabled": "0"}

    committed = pipeline_store.commit("transfer", None, "first version")
    assert (committed.state, committed.comment) == ("committed", "first version")
    assert committed.committed_at is not None and not committed.in_use

    used = pipeline_store.use("transfer", definition.version)
    assert used.in_use
    assert cached(redis, keys) == {
        "inUse": definition.version,
        "disabled": "0",
        f"v:{definition.version}": definition.to_json(),
    }
    assert pipeline_store.show("transfer").definition == definition


def test_the_same_content_again_is_no_change(pipeline_store: PipelineStore, define: Define) -> None:
    pipeline_store.apply(define())
    pipeline_store.commit("transfer", comment="first")
    again = pipeline_store.apply(define())
    assert (again.is_new, again.state) == (False, "committed")
    assert len(pipeline_store.versions("transfer")) == 1


def test_a_draft_may_be_used_and_using_enables(
    pipeline_store: PipelineStore, redis: Redis, keys: Keys, define: Define
) -> None:
    version = pipeline_store.apply(define()).version
    pipeline_store.use("transfer", version)
    pipeline_store.disable("transfer")
    assert cached(redis, keys)["disabled"] == "1"
    assert pipeline_store.use("transfer", version).state == "draft"
    assert cached(redis, keys)["disabled"] == "0"


def test_commit_takes_the_draft_that_was_applied_last(
    pipeline_store: PipelineStore, define: Define
) -> None:
    one, two = define(description="one"), define(description="two")
    for definition in (one, two, one):
        pipeline_store.apply(definition)
    assert pipeline_store.commit("transfer", comment="one").version == one.version
    assert pipeline_store.commit("transfer", comment="two").version == two.version
    with pytest.raises(PipelineUnknown, match="has no draft to commit"):
        pipeline_store.commit("transfer", comment="three")


def test_a_committed_version_keeps_its_comment(
    pipeline_store: PipelineStore, define: Define
) -> None:
    version = pipeline_store.apply(define()).version
    pipeline_store.commit("transfer", version, "first")
    assert pipeline_store.commit("transfer", version, "second").comment == "first"


@pytest.mark.parametrize("comment", ["", "  \n", "x" * 4_001, "a\x00b"])
def test_a_commit_needs_a_comment(
    pipeline_store: PipelineStore, define: Define, comment: str
) -> None:
    pipeline_store.apply(define())
    with pytest.raises(PipelineInvalid, match="transfer: comment: "):
        pipeline_store.commit("transfer", None, comment)
    assert pipeline_store.show("transfer").info.state == "draft"


def test_the_list_counts_versions_and_drafts(pipeline_store: PipelineStore, define: Define) -> None:
    for name, description in (("a", ""), ("a", "x"), ("b", "")):
        pipeline_store.apply(define(name, description=description))
    version = pipeline_store.commit("a", comment="x").version
    pipeline_store.use("a", version)
    pipeline_store.disable("b")
    found = [
        (each.name, each.version_in_use, each.disabled, each.versions, each.drafts)
        for each in pipeline_store.list()
    ]
    assert found == [("a", version, False, 2, 1), ("b", None, True, 1, 1)]


def test_show_takes_the_version_in_use_or_else_the_newest(
    pipeline_store: PipelineStore, define: Define
) -> None:
    one, two = define(description="one"), define(description="two")
    pipeline_store.apply(one)
    pipeline_store.apply(two)
    assert pipeline_store.show("transfer").definition == two
    pipeline_store.use("transfer", one.version)
    assert pipeline_store.show("transfer").definition == one
    assert pipeline_store.show("transfer", two.version).definition == two
    newest_first = [(each.version, each.in_use) for each in pipeline_store.versions("transfer")]
    assert newest_first == [(two.version, False), (one.version, True)]


def test_a_version_may_be_named_by_a_unique_start(
    pipeline_store: PipelineStore, define: Define
) -> None:
    # Seventeen versions cannot all start with different characters.
    made = [pipeline_store.apply(define(description=str(n))).version for n in range(17)]
    assert pipeline_store.use("transfer", made[3][:12]).version == made[3]
    firsts = [version[0] for version in made]
    shared = next(first for first in firsts if firsts.count(first) > 1)
    with pytest.raises(PipelineUnknown, match=r"could be .*; give more of it"):
        pipeline_store.use("transfer", shared)


@pytest.mark.parametrize("version", ["0", "ffffffffffffffff", "%", "_", "Draft", "0" * 64, ""])
def test_an_unknown_version_is_named(
    pipeline_store: PipelineStore, define: Define, version: str
) -> None:
    definition = define()
    assert definition.version[0] != "0"
    pipeline_store.apply(definition)
    with pytest.raises(PipelineUnknown, match=f"transfer has no version '{version}'"):
        pipeline_store.use("transfer", version)


def test_an_unknown_pipeline_is_named(pipeline_store: PipelineStore) -> None:
    calls: list[Callable[[], object]] = [
        lambda: pipeline_store.use("nope", "0"),
        lambda: pipeline_store.disable("nope"),
        lambda: pipeline_store.show("nope"),
        lambda: pipeline_store.versions("nope"),
        lambda: pipeline_store.commit("nope", comment="x"),
        lambda: pipeline_store.export("nope"),
        lambda: pipeline_store.load("nope", "0"),
    ]
    for call in calls:
        with pytest.raises(PipelineUnknown, match="There is no pipeline 'nope'"):
            call()
    assert pipeline_store.list() == ()


def test_an_export_can_be_imported_elsewhere(
    pipeline_store: PipelineStore, engine: Engine, define: Define
) -> None:
    definition = define()
    pipeline_store.apply(definition)
    pipeline_store.commit("transfer", comment="as agreed")
    document = json.loads(json.dumps(pipeline_store.export("transfer")))
    assert document == {
        "format": "datp-pipeline/1",
        "name": "transfer",
        "version": definition.version,
        "contentHash": definition.content_hash,
        "comment": "as agreed",
        "definition": definition.to_mapping(),
    }
    run(engine, "TRUNCATE pipeline, pipeline_version")

    applied = pipeline_store.import_(document)
    assert (applied.version, applied.is_new, applied.state) == (
        definition.version,
        True,
        "committed",
    )
    info = pipeline_store.show("transfer").info
    assert (info.state, info.comment, info.in_use) == ("committed", "as agreed", False)
    assert not pipeline_store.import_(document).is_new


def test_an_import_commits_a_draft_of_the_same_content(
    pipeline_store: PipelineStore, define: Define
) -> None:
    pipeline_store.apply(define())
    applied = pipeline_store.import_(pipeline_store.export("transfer"))
    assert (applied.is_new, applied.state) == (False, "committed")
    assert pipeline_store.show("transfer").info.comment == "imported"


@pytest.mark.parametrize(
    "change",
    [
        {"contentHash": "0" * 64},
        {"version": "0" * 16},
        {"name": "other"},
        {"definition": {"pipeline": "transfer", "steps": [{"type": "evil/step"}]}},
    ],
)
def test_an_altered_export_is_refused(
    pipeline_store: PipelineStore, define: Define, change: dict[str, Any]
) -> None:
    pipeline_store.apply(define())
    with pytest.raises(VersionMismatch, match="it was altered"):
        pipeline_store.import_(pipeline_store.export("transfer") | change)
    assert len(pipeline_store.versions("transfer")) == 1


@pytest.mark.parametrize(
    ("document", "mistake"),
    [
        (None, "is not an exported pipeline"),
        ([], "is not an exported pipeline"),
        ({"format": "datp-pipeline/2"}, "is not an exported pipeline"),
        ({"format": "datp-pipeline/1"}, "definition: is missing"),
    ],
)
def test_garbage_is_refused(pipeline_store: PipelineStore, document: object, mistake: str) -> None:
    with pytest.raises(PipelineInvalid, match=mistake):
        pipeline_store.import_(document)


@pytest.mark.parametrize(
    ("change", "mistake"),
    [
        ({"definition": {"pipeline": "transfer"}}, "import: steps: is missing"),
        ({"definition": None}, "import: must be an object"),
        ({"comment": 7}, "import: comment: must say"),
        ({"extra": 7}, "import: extra: is not a known key"),
    ],
)
def test_an_export_with_mistakes_is_refused(
    pipeline_store: PipelineStore, define: Define, change: dict[str, Any], mistake: str
) -> None:
    pipeline_store.apply(define())
    with pytest.raises(PipelineInvalid, match=mistake):
        pipeline_store.import_(pipeline_store.export("transfer") | change)


@pytest.mark.parametrize(
    "alteration",
    [
        "UPDATE pipeline_version SET definition = replace(definition, '100', '999')",
        "UPDATE pipeline_version SET content_hash = repeat('0', 64)",
        "UPDATE pipeline_version SET definition = replace(definition, '100', '999'), content_hash ="
        " encode(sha256(convert_to(replace(definition, '100', '999'), 'UTF8')), 'hex')",
    ],
)
def test_an_altered_row_is_refused_and_applying_it_again_restores_it(
    pipeline_store: PipelineStore, engine: Engine, define: Define, alteration: str
) -> None:
    definition = define()
    version = pipeline_store.apply(definition).version
    run(engine, alteration)
    calls: list[Callable[[], object]] = [
        lambda: pipeline_store.load("transfer", version),
        lambda: pipeline_store.show("transfer"),
        lambda: pipeline_store.use("transfer", version),
        lambda: pipeline_store.commit("transfer", comment="x"),
        lambda: pipeline_store.export("transfer"),
    ]
    for call in calls:
        with pytest.raises(VersionMismatch, match="was altered in the database"):
            call()
    assert len(pipeline_store.list()) == 1
    assert not pipeline_store.apply(definition).is_new
    assert pipeline_store.load("transfer", version) == definition


def test_two_contents_with_the_same_version_are_not_mixed_up(
    pipeline_store: PipelineStore, engine: Engine, define: Define
) -> None:
    one, two = define(description="one"), define(description="two")
    forged = define(description="forged")
    pipeline_store.apply(one)
    # As if the hash of `two` started like that of `one`: the row itself is intact.
    object.__setattr__(forged, "version", one.version)
    object.__setattr__(forged, "content_hash", two.content_hash)
    object.__setattr__(forged, "_json", two.to_json())
    with pytest.raises(VersionMismatch, match="is taken by another content"):
        pipeline_store.apply(forged)
    assert pipeline_store.load("transfer", one.version) == one


def test_a_diff_shows_what_changed(pipeline_store: PipelineStore, define: Define) -> None:
    one = pipeline_store.apply(define(description="one")).version
    two = pipeline_store.apply(define(description="two")).version
    lines = pipeline_store.diff("transfer", one, two).splitlines()
    assert lines[:2] == [f"--- transfer {one}", f"+++ transfer {two}"]
    assert "-description: one" in lines and "+description: two" in lines
    assert pipeline_store.diff("transfer", one, one) == ""


def test_what_operators_did_is_written_down(
    pipeline_store: PipelineStore, engine: Engine, define: Define
) -> None:
    version = pipeline_store.apply(define()).version
    pipeline_store.commit("transfer", comment="as agreed")
    pipeline_store.apply(define())
    pipeline_store.use("transfer", version, reason="tested")
    pipeline_store.disable("transfer")
    found = run(
        engine,
        "SELECT actor, action, subject, reason, details->>'version' FROM operator_action"
        " ORDER BY id",
    )
    assert [tuple(row) for row in found] == [
        ("tester", "pipeline.apply", "transfer", None, version),
        ("tester", "pipeline.commit", "transfer", "as agreed", version),
        ("tester", "pipeline.use", "transfer", "tested", version),
        ("tester", "pipeline.disable", "transfer", None, None),
    ]


def test_a_crash_before_the_copy_heals(
    pipeline_store: PipelineStore,
    engine: Engine,
    redis: Redis,
    keys: Keys,
    define: Define,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    one = pipeline_store.apply(define(description="one")).version
    two = pipeline_store.apply(define(description="two")).version
    pipeline_store.use("transfer", one)
    with monkeypatch.context() as patch:
        patch.setattr(pipeline_store, "_copy_to_redis", lambda name: None)
        pipeline_store.use("transfer", two)
    assert cached(redis, keys)["inUse"] == one

    assert pipeline_store.refresh_all() == 1
    assert cached(redis, keys).items() >= head_in_sql(engine).items()
    assert cached(redis, keys)["inUse"] == two
    assert pipeline_store.refresh_all() == 0


def test_an_emptied_redis_is_filled_again(
    pipeline_store: PipelineStore, redis: Redis, keys: Keys, define: Define
) -> None:
    for name in ("a", "b"):
        pipeline_store.use(name, pipeline_store.apply(define(name)).version)
    redis.flushdb()
    assert pipeline_store.refresh_all() == 2
    assert cached(redis, keys, "a")["inUse"] == define("a").version


def test_a_copy_of_a_pipeline_that_sql_does_not_know_is_removed(
    pipeline_store: PipelineStore, redis: Redis, keys: Keys
) -> None:
    redis.hset(keys.pipeline("gone"), mapping={"inUse": "x", "disabled": "0"})
    assert pipeline_store.refresh("gone") is None
    assert not redis.exists(keys.pipeline("gone"))


def test_a_change_is_recorded_also_without_redis(
    engine: Engine, keys: Keys, define: Define, caplog: pytest.LogCaptureFixture
) -> None:
    unreachable = Redis(host="127.0.0.1", port=1, retry=Retry(NoBackoff(), 0))
    store = make_store(engine, unreachable, keys)
    with caplog.at_level(logging.WARNING):
        store.use("transfer", store.apply(define()).version)
    assert head_in_sql(engine)["inUse"] == define().version
    assert "is recorded, but Redis did not take it" in caplog.text
    unreachable.close()


def test_many_at_once_leave_the_copy_equal_to_the_record(
    pipeline_store: PipelineStore, engine: Engine, redis: Redis, keys: Keys, define: Define
) -> None:
    made = [pipeline_store.apply(define(description=str(n))).version for n in range(4)]

    def change(n: int) -> None:
        if n % 5 == 4:
            pipeline_store.disable("transfer")
        else:
            pipeline_store.use("transfer", made[n % 4])

    for _ in range(5):
        with ThreadPoolExecutor(4) as pool:
            list(pool.map(change, range(12)))
        assert cached(redis, keys).items() >= head_in_sql(engine).items()


def test_a_slow_copy_never_lies_over_a_newer_one(
    pipeline_store: PipelineStore, engine: Engine, redis: Redis, keys: Keys, define: Define
) -> None:
    """The slow one has read the record, but not yet written Redis, when another one changes it."""
    one = pipeline_store.apply(define(description="one")).version
    two = pipeline_store.apply(define(description="two")).version
    slow = make_store(engine, redis, keys, actor=Actor(name="slow"))
    has_read, may_write = threading.Event(), threading.Event()

    class SlowCache(PipelineCache):
        def put_head(self, name: str, head: Head, text: str | None) -> None:
            has_read.set()
            assert may_write.wait(10)
            super().put_head(name, head, text)

    slow._cache = SlowCache(redis, keys)
    with ThreadPoolExecutor(2) as pool:
        first = pool.submit(slow.use, "transfer", one)
        assert has_read.wait(10)
        second = pool.submit(pipeline_store.use, "transfer", two)
        waiting = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'"
        while not second.done() and run(engine, waiting)[0][0] == 0:
            pass
        assert not second.done()
        may_write.set()
        first.result(10)
        second.result(10)
    assert cached(redis, keys)["inUse"] == two == head_in_sql(engine)["inUse"]


def test_the_same_pipeline_may_be_applied_by_many_at_once(
    pipeline_store: PipelineStore, define: Define
) -> None:
    definition = define()
    with ThreadPoolExecutor(4) as pool:
        applied = list(pool.map(lambda _: pipeline_store.apply(definition), range(8)))
    assert sum(each.is_new for each in applied) == 1
    assert len(pipeline_store.versions("transfer")) == 1
