"""A whole DATP on one machine: embedded PostgreSQL, a Redis-compatible server and `datp up`.

Reading order: `binaries` (what is run), `processes` (one child), `server` with `postgres` and
`redis_server` (the two servers), `supervisor` (keeps children alive), `stack` (all of it together).
"""
