"""How commands find their server: slots that move, scripts that are missing, masters that die."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import replace

import pytest
from redis import Redis
from redis.exceptions import ConnectionError, RedisError, ResponseError

from datp_tasks.live.cluster import slot_of
from datp_tasks.live.cluster_redis import ClusterRedis
from datp_tasks.live.connect import make_redis
from datp_tasks.live.live_types import Claimed
from datp_tasks.live.scripts import script
from datp_tasks.local.redis_cluster import ClusterMember, RedisCluster
from datp_tasks.settings import Settings
from datp_tasks.testing.servers import Servers
from tests.support.eventually import eventually
from tests.support.live_states import NODE, STEP, Stage, interrupted_read

SHARDS = [f"{number:02d}" for number in range(16)]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisCluster]:
    """One that may be treated roughly."""
    made = RedisCluster(tmp_path_factory.mktemp("rough"), masters=2, appendfsync="no")
    made.start()
    yield made
    made.destroy()


@pytest.fixture
def stage(datp_servers: Servers, cluster: RedisCluster) -> Iterator[Stage]:
    servers = replace(datp_servers, redis_url=cluster.url, redis_cluster=True)
    made = Stage(servers)
    yield made
    made.close()


def slot_of_shard(stage: Stage, shard: str) -> int:
    return slot_of(("GET", stage.live.keys.in_shard(shard, "any")))


def owner_of(cluster: RedisCluster, slot: int) -> ClusterMember:
    for first, last, (_, port, *_), *_ in cluster.masters[0].ask("CLUSTER", "SLOTS"):
        if first <= slot <= last:
            return next(each for each in cluster.members if each.port == port)
    raise AssertionError(f"nobody has slot {slot}")


class Move:
    """A slot on its way from one master to the other, key by key."""

    def __init__(self, cluster: RedisCluster, slot: int) -> None:
        self.slot = slot
        self.source = owner_of(cluster, slot)
        self.target = next(each for each in cluster.masters if each is not self.source)
        self._ids = [each.ask("CLUSTER", "MYID") for each in (self.source, self.target)]
        self._cluster = cluster

    def begin(self) -> None:
        self.target.ask("CLUSTER", "SETSLOT", self.slot, "IMPORTING", self._ids[0])
        self.source.ask("CLUSTER", "SETSLOT", self.slot, "MIGRATING", self._ids[1])

    def carry(self) -> None:
        password = self.source._given_password
        while keys := self.source.ask("CLUSTER", "GETKEYSINSLOT", self.slot, 100):
            where = ("127.0.0.1", self.target.port, "", 0, 5_000, "AUTH", password)
            self.source.ask("MIGRATE", *where, "KEYS", *keys)

    def end(self) -> None:
        for member in (self.target, self.source):
            member.ask("CLUSTER", "SETSLOT", self.slot, "NODE", self._ids[1])


def test_commands_of_all_slots_get_their_own_replies_in_order(stage: Stage) -> None:
    names = [f"{stage.settings.key_prefix}:{number}" for number in range(200)]
    stage.live.send([("SET", name, name) for name in names])
    assert stage.live.send([("GET", name) for name in names]) == names
    pipeline = stage.redis.pipeline(transaction=False)
    for name in names:
        pipeline.get(name)
        pipeline.exists(name)
    assert pipeline.execute() == [answer for name in names for answer in (name, 1)]
    assert stage.redis.exists(*names) == stage.redis.delete(*names) == len(names)


def test_bytes_that_are_no_text_come_through(stage: Stage) -> None:
    for shard in SHARDS[:4]:
        key, copy = (stage.live.keys.in_shard(shard, name) for name in ("long", "copy"))
        stage.redis.set(key, "ab" * 200)
        stage.redis.restore(copy, 0, stage.redis.dump(key) or b"")
        assert stage.redis.get(copy) == "ab" * 200


def test_an_error_of_one_command_does_not_shift_the_replies_of_the_others(stage: Stage) -> None:
    keys = [stage.live.keys.in_shard(shard, "thing") for shard in SHARDS]
    stage.live.send([("SET", key, "a string is no list") for key in keys[1:]])
    found = stage.redis.pipeline(transaction=False)
    for key in keys:
        found.rpush(key, "x")
    answers = found.execute(raise_on_error=False)
    assert [isinstance(each, ResponseError) for each in answers] == [False] + [True] * 15
    assert answers[0] == 1


def test_one_that_is_interrupted_leaves_no_reply_on_any_connection(stage: Stage) -> None:
    bells = [stage.queued(shard=shard) for shard in SHARDS]
    with interrupted_read(12):
        stage.live.claim_many([(b.tx_id, b.sequence) for b in bells], NODE, step_type=STEP)
    names = [stage.live.keys.in_shard(shard, "name") for shard in SHARDS]
    stage.live.send([("SET", name, name) for name in names])
    assert stage.live.send([("GET", name) for name in names]) == names


def test_a_script_that_one_master_forgot_runs_there_once(
    stage: Stage, cluster: RedisCluster
) -> None:
    bells = [stage.queued(shard=shard) for shard in SHARDS]
    cluster.masters[1].ask("SCRIPT", "FLUSH")
    before = stage.live.round_trips
    claims = stage.live.claim_many([(b.tx_id, b.sequence) for b in bells], NODE, step_type=STEP)
    assert all(isinstance(claim, Claimed) for claim in claims)
    assert stage.live.round_trips == before + 2
    assert [len(stage.entries(bell.tx_id)) for bell in bells] == [1] * 16
    known = cluster.masters[1].ask("SCRIPT", "EXISTS", script("claim").sha)
    assert list(map(int, known)) == [1]


def test_commands_follow_a_slot_that_has_moved_and_run_once(
    stage: Stage, cluster: RedisCluster
) -> None:
    bells = [stage.queued(shard=shard) for shard in SHARDS]
    assert isinstance(stage.redis, ClusterRedis)
    known = stage.redis.servers._map
    move = Move(cluster, slot_of_shard(stage, "07"))
    move.begin()
    move.carry()
    move.end()
    claims = stage.live.claim_many([(b.tx_id, b.sequence) for b in bells], NODE, step_type=STEP)
    assert all(isinstance(claim, Claimed) for claim in claims)
    assert [len(stage.entries(bell.tx_id)) for bell in bells] == [1] * 16
    # Now it is known: the next command finds its way at once.
    renewed = stage.redis.servers._map
    assert renewed is not known
    assert renewed[move.slot] == ("127.0.0.1", move.target.port)
    assert stage.fields(bells[7].tx_id)
    assert stage.redis.servers._map is renewed
    assert stage.seen(bells[7].tx_id).fields["status"] == "running"


def test_a_transaction_of_redis_follows_a_slot_that_has_moved(
    stage: Stage, cluster: RedisCluster
) -> None:
    bell = stage.queued(shard="05")
    move = Move(cluster, slot_of_shard(stage, "05"))
    move.begin()
    move.carry()
    move.end()
    assert stage.seen(bell.tx_id).fields["status"] == "queued"


def test_commands_are_asked_of_the_server_that_is_getting_the_slot(
    stage: Stage, cluster: RedisCluster
) -> None:
    bell = stage.queued(shard="03")
    key = stage.live.keys.state(bell.tx_id)
    move = Move(cluster, slot_of_shard(stage, "03"))
    move.begin()
    move.carry()
    assert stage.redis.hget(key, "status") == "queued"
    # And between others, which stay where they are.
    other = stage.live.keys.in_shard("04", "other")
    sent = [("SET", other, "1"), ("HGET", key, "status"), ("GET", other)]
    assert stage.live.send(sent)[1:] == ["queued", "1"]
    move.end()
    assert stage.redis.hget(key, "status") == "queued"


def test_a_script_waits_for_a_slot_whose_keys_are_in_two_places(
    stage: Stage, cluster: RedisCluster
) -> None:
    bells = [stage.queued(shard="09") for _ in range(3)]
    move = Move(cluster, slot_of_shard(stage, "09"))
    move.begin()

    def finish() -> None:
        move.carry()
        move.end()

    ending = threading.Timer(0.2, finish)
    ending.start()
    claims = stage.live.claim_many([(b.tx_id, b.sequence) for b in bells], NODE, step_type=STEP)
    ending.join()
    assert all(isinstance(claim, Claimed) for claim in claims)
    assert [len(stage.entries(bell.tx_id)) for bell in bells] == [1] * 3


def test_keys_of_one_transaction_must_share_a_slot(stage: Stage) -> None:
    pipeline = stage.redis.pipeline()
    for shard in SHARDS[:2]:
        pipeline.get(stage.live.keys.in_shard(shard, "a"))
    with pytest.raises(ResponseError, match="one slot"):
        pipeline.execute()


def test_nothing_is_asked_before_it_is_needed_and_an_outage_is_an_error_of_redis() -> None:
    settings = Settings(redis_url="redis://127.0.0.1:1", redis_cluster="on", broker_url="memory://")
    redis = make_redis(settings)
    with pytest.raises(ConnectionError, match="no server of the Redis Cluster answers"):
        redis.get("x")
    redis.close()


def test_a_single_server_is_refused_with_what_to_do(datp_servers: Servers) -> None:
    assert not datp_servers.redis_cluster
    url = datp_servers.redis_url
    settings = Settings(redis_url=url, redis_cluster="on", broker_url="memory://")
    redis = make_redis(settings)
    with pytest.raises(ConnectionError, match="DATP_REDIS_CLUSTER=off"):
        redis.get("x")
    redis.close()


def test_a_dead_master_is_an_outage_until_its_replica_takes_over(
    stage: Stage, cluster: RedisCluster
) -> None:
    """Comes last: the cluster is another one afterwards."""
    bells = [stage.queued(shard=shard) for shard in SHARDS]
    dead = cluster.masters[1]
    replica = cluster.add_replica(dead)
    eventually(lambda: dead.ask("WAIT", 1, 1_000) == 1)
    stage.live.exist_many([bell.tx_id for bell in bells])
    dead.kill()
    with pytest.raises(RedisError):
        stage.live.exist_many([bell.tx_id for bell in bells])
    # Those of the other master can be worked on meanwhile.
    alive = [b for b in bells if owner_of(cluster, slot_of_shard(stage, b.tx_id[1:3])) is not dead]
    assert 0 < len(alive) < 16
    assert all(stage.live.exist_many([bell.tx_id for bell in alive]))
    replica.ask("CLUSTER", "FAILOVER", "TAKEOVER")
    eventually(lambda: _works(stage.redis, [stage.live.keys.state(b.tx_id) for b in bells]))
    claims = stage.live.claim_many([(b.tx_id, b.sequence) for b in bells], NODE, step_type=STEP)
    assert all(isinstance(claim, Claimed) for claim in claims)


def _works(redis: Redis, keys: list[str]) -> bool:
    try:
        return all(redis.exists(key) for key in keys)
    except RedisError:
        return False
