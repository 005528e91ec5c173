"""Bells: Celery messages that say which transactions are due. Hints, never the record."""
