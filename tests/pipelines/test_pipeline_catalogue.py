"""What clients and workers get: the version in use, or a pinned one, from the nearest place."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest
from redis import Redis
from sqlalchemy import Engine, text

from datp_tasks.errors import PipelineDisabled, PipelineUnknown, VersionMismatch
from datp_tasks.live.keys import Keys
from datp_tasks.model.pipeline import PipelineDefinition
from datp_tasks.pipelines.catalogue import Catalogue
from datp_tasks.pipelines.version_store import PipelineStore

Define = Callable[..., PipelineDefinition]


class FakeTime:
    def __init__(self) -> None:
        self.now_s = 1_000.0

    def __call__(self) -> float:
        return self.now_s


class NoStore(PipelineStore):
    """Stands for a database that is away: any question to it is a failure of the test."""

    def __init__(self, keys: Keys) -> None:
        self.keys = keys


@pytest.fixture
def time_s() -> FakeTime:
    return FakeTime()


@pytest.fixture
def catalogue(redis: Redis, pipeline_store: PipelineStore, time_s: FakeTime) -> Catalogue:
    return Catalogue(redis, pipeline_store, 2.0, monotonic_s=time_s)


def use(store: PipelineStore, definition: PipelineDefinition) -> PipelineDefinition:
    store.apply(definition)
    store.use(definition.name, definition.version)
    return definition


def test_the_current_version_is_the_one_in_use(
    catalogue: Catalogue, pipeline_store: PipelineStore, define: Define
) -> None:
    one = use(pipeline_store, define(description="one"))
    pipeline_store.apply(define(description="two"))
    assert catalogue.current("transfer") == one
    assert catalogue.current("transfer").version == one.version


def test_versions_that_are_asked_for_in_turn_are_not_mixed_up(
    catalogue: Catalogue, pipeline_store: PipelineStore, define: Define
) -> None:
    """The one that was asked for last is remembered."""
    kept = [define(description="one"), define(description="two"), define(name="payout")]
    for definition in kept:
        pipeline_store.apply(definition)
    for definition in (*kept, *kept, kept[0], kept[0]):
        assert catalogue.version(definition.name, definition.version) == definition


def test_a_change_is_seen_after_the_reload_time(
    catalogue: Catalogue, pipeline_store: PipelineStore, define: Define, time_s: FakeTime
) -> None:
    one = use(pipeline_store, define(description="one"))
    assert catalogue.current("transfer") == one
    two = use(pipeline_store, define(description="two"))
    time_s.now_s += 1.9
    assert catalogue.current("transfer") == one
    time_s.now_s += 0.1
    assert catalogue.current("transfer") == two
    pipeline_store.disable("transfer")
    time_s.now_s += 2
    with pytest.raises(PipelineDisabled):
        catalogue.current("transfer")


def test_without_a_reload_time_a_change_is_seen_at_once(
    redis: Redis, pipeline_store: PipelineStore, define: Define
) -> None:
    catalogue = Catalogue(redis, pipeline_store, 0)
    for description in ("one", "two", "one"):
        used = use(pipeline_store, define(description=description))
        assert catalogue.current("transfer") == used


def test_within_the_reload_time_no_store_is_asked(
    catalogue: Catalogue,
    pipeline_store: PipelineStore,
    define: Define,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    use(pipeline_store, define())
    first = catalogue.current("transfer")
    monkeypatch.setattr(catalogue, "_cache", None)
    monkeypatch.setattr(catalogue, "_store", None)
    assert catalogue.current("transfer") is first


@pytest.mark.parametrize("name", ["nope", "", "Not a name", "a:b", "*", "a\x00b", "x" * 500])
def test_an_unknown_pipeline_says_where_to_look(catalogue: Catalogue, name: str) -> None:
    with pytest.raises(PipelineUnknown, match="`datp pipelines list` shows"):
        catalogue.current(name)


def test_what_cannot_be_started_says_what_to_do(
    catalogue: Catalogue, pipeline_store: PipelineStore, define: Define
) -> None:
    definition = define()
    pipeline_store.apply(definition)
    with pytest.raises(PipelineDisabled, match=r"no version in use yet.*datp pipelines use"):
        catalogue.current("transfer")
    pipeline_store.disable("transfer")
    with pytest.raises(PipelineDisabled, match=r"is disabled.*datp pipelines use transfer"):
        catalogue.current("transfer")
    # A refusal is not remembered: once it is in use, it can be started at once.
    pipeline_store.use("transfer", definition.version)
    assert catalogue.current("transfer") == definition


def test_an_emptied_redis_is_filled_from_sql(
    catalogue: Catalogue,
    pipeline_store: PipelineStore,
    redis: Redis,
    keys: Keys,
    define: Define,
) -> None:
    definition = use(pipeline_store, define())
    redis.flushdb()
    assert catalogue.current("transfer") == definition
    assert redis.hexists(keys.pipeline("transfer"), "inUse")
    assert redis.hexists(keys.pipeline("transfer"), f"v:{definition.version}")


def test_a_hash_that_holds_only_versions_is_not_taken_for_a_head(
    catalogue: Catalogue, pipeline_store: PipelineStore, redis: Redis, define: Define
) -> None:
    one = pipeline_store.apply(define(description="one")).version
    two = use(pipeline_store, define(description="two"))
    redis.flushdb()
    catalogue.version("transfer", one)
    assert catalogue.current("transfer") == two


def test_a_pinned_version_stays_available(
    catalogue: Catalogue, pipeline_store: PipelineStore, define: Define
) -> None:
    one = use(pipeline_store, define(description="one"))
    use(pipeline_store, define(description="two"))
    pipeline_store.disable("transfer")
    assert catalogue.version("transfer", one.version) == one


def test_a_version_comes_from_memory_then_redis_then_sql(
    redis: Redis, pipeline_store: PipelineStore, keys: Keys, define: Define
) -> None:
    definition = define()
    pipeline_store.apply(definition)
    field = f"v:{definition.version}"
    assert not redis.hexists(keys.pipeline("transfer"), field)

    from_sql = Catalogue(redis, pipeline_store, 2.0).version("transfer", definition.version)
    assert from_sql == definition
    assert redis.hexists(keys.pipeline("transfer"), field)

    without_sql = Catalogue(redis, NoStore(keys), 2.0)
    from_redis = without_sql.version("transfer", definition.version)
    assert from_redis == definition and from_redis.version == definition.version

    redis.flushdb()
    assert without_sql.version("transfer", definition.version) is from_redis


def test_a_spoiled_copy_in_redis_is_not_used(
    catalogue: Catalogue, pipeline_store: PipelineStore, redis: Redis, keys: Keys, define: Define
) -> None:
    definition = use(pipeline_store, define())
    spoiled = definition.to_json().replace("100", "999")
    redis.hset(keys.pipeline("transfer"), f"v:{definition.version}", spoiled)
    assert catalogue.current("transfer") == definition


def test_an_altered_row_is_refused(
    catalogue: Catalogue,
    pipeline_store: PipelineStore,
    engine: Engine,
    redis: Redis,
    define: Define,
) -> None:
    definition = use(pipeline_store, define())
    redis.flushdb()
    with engine.begin() as connection:
        connection.execute(
            text("UPDATE pipeline_version SET definition = replace(definition, '100', '999')")
        )
    for _ in range(2):
        with pytest.raises(VersionMismatch, match="was altered in the database"):
            catalogue.current("transfer")
    with pytest.raises(VersionMismatch):
        catalogue.version("transfer", definition.version)


def test_a_version_must_be_given_whole(
    catalogue: Catalogue, pipeline_store: PipelineStore, define: Define
) -> None:
    version = pipeline_store.apply(define()).version
    for wrong in (version[:8], "0" * 16, ""):
        with pytest.raises(PipelineUnknown):
            catalogue.version("transfer", wrong)


def test_no_more_versions_are_kept_than_allowed(
    redis: Redis, pipeline_store: PipelineStore, define: Define
) -> None:
    catalogue = Catalogue(redis, pipeline_store, 2.0, versions_max=2)
    made = [pipeline_store.apply(define(description=str(n))).version for n in range(3)]
    for version in (made[0], made[1], made[0], made[2]):
        catalogue.version("transfer", version)
    # The one that was not asked for the longest has left.
    assert list(catalogue._versions) == [("transfer", made[0]), ("transfer", made[2])]


def test_threads_may_share_it(redis: Redis, pipeline_store: PipelineStore, define: Define) -> None:
    catalogue = Catalogue(redis, pipeline_store, 0, versions_max=2)
    made = [use(pipeline_store, define(description=str(n))) for n in range(4)]

    def ask(n: int) -> bool:
        wanted = made[n % 4]
        current = catalogue.current("transfer")
        return catalogue.version("transfer", wanted.version) == wanted and current in made

    with ThreadPoolExecutor(8) as pool:
        assert all(pool.map(ask, range(400)))
