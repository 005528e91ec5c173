"""The connection to Redis: one server, or a cluster."""

from __future__ import annotations

from typing import Any

from redis import Redis as Redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from datp_tasks.live.cluster import Cluster
from datp_tasks.live.cluster_redis import ClusterRedis
from datp_tasks.settings import Settings

#: A script takes milliseconds; a server that is silent for so long is gone.
TIMEOUT_S = 5.0


def make_redis(settings: Settings) -> Redis:
    """No retries of our own: a script that was sent twice would be counted twice."""
    options: dict[str, Any] = {
        "decode_responses": True,
        "socket_timeout": TIMEOUT_S,
        "socket_connect_timeout": TIMEOUT_S,
        "socket_keepalive": True,
        "health_check_interval": 15,
        "retry": Retry(NoBackoff(), 0),
    }
    if settings.redis_cluster == "on":
        return ClusterRedis(Cluster(settings.redis_url, **options))
    redis: Redis = Redis.from_url(settings.redis_url, **options)
    return redis
