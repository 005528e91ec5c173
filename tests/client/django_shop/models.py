from __future__ import annotations

from django.db import models


class Order(models.Model):
    number = models.TextField(unique=True)
    tx_id = models.TextField()
