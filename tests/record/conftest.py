"""Statements on connections of their own, which the test may break."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from sqlalchemy import Engine

from datp_tasks.record.database import make_engine
from datp_tasks.record.sole_statement import SoleStatements
from datp_tasks.testing import Kit


@pytest.fixture
def engine(datp: Kit) -> Iterator[Engine]:
    engine = make_engine(datp.settings)
    yield engine
    engine.dispose()


@pytest.fixture
def sole(engine: Engine) -> SoleStatements:
    return SoleStatements(engine)
