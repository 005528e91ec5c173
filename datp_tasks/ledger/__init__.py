"""Ordered submission of batches to outside ledgers, by several instances that may fail or hang.

The record of everything is PostgreSQL: who holds which service (`claims`), what was sent and what
became of it (`batches`). Celery only says where to look.
"""
