"""A stand-in for ledgers: a real HTTP server that behaves, forgets and fails as the real ones do.

For tests, the demo and the benchmark. Its log of executions is the oracle: what was executed, how
often and in which order, whatever a client was told.
"""
