"""Houses, as in the acceptance ring, for tests of what an operator sees and does."""

from __future__ import annotations

from tests.acceptance.conftest import (  # noqa: F401
    _numbers,
    acceptance_redis,
    house,
    new_house,
    template_url,
)
