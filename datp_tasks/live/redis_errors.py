"""The error of a Redis that does not answer, for the rooms that go on without it."""

from redis.exceptions import RedisError as RedisError
