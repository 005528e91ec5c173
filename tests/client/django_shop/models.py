from __future__ import annotations

from django.db import models


class Order(models.Model):  # type: ignore[misc]
    number = models.TextField(unique=True)
    tx_id = models.TextField()
