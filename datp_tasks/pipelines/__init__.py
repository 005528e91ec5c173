"""Pipelines as versioned data: files, the record in SQL, the cache in Redis and in memory.

Reading order: `files` (what people write), `store` (versions and which one is in use), `cache`
(the copy in Redis), `catalogue` (what clients and workers ask), `offers` (who can run it).
"""
