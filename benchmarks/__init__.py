"""Benchmarks: what a transaction costs, beside a plain Celery chain on the same servers.

`python -m benchmarks [--only PART] [--quick]` starts servers of its own, measures, prints tables
and merges its figures into `benchmarks/latest.json`. Each part is a module in `parts/`.
"""
