"""Settings of the project; the address of PostgreSQL is that of DATP Tasks."""

from __future__ import annotations

import os
from urllib.parse import urlsplit

_place = urlsplit(os.environ["SHOP_DATABASE_URL"])

SECRET_KEY = "only for tests"
INSTALLED_APPS = ["tests.client.django_shop"]
ROOT_URLCONF = "tests.client.django_shop.urls"
ALLOWED_HOSTS = ["*"]
USE_TZ = True
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
DATABASES = {
    "default": {
        "ENGINE": "django.db.backends.postgresql",
        "NAME": _place.path.lstrip("/"),
        "USER": _place.username,
        "PASSWORD": _place.password,
        "HOST": _place.hostname,
        "PORT": _place.port,
    },
    "elsewhere": {"ENGINE": "django.db.backends.sqlite3", "NAME": ":memory:"},
}
