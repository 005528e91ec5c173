"""Types of columns that SQLAlchemy does not have."""

from __future__ import annotations

from sqlalchemy.types import UserDefinedType


class Xid8(UserDefinedType[str]):
    """PostgreSQL's 64-bit transaction id."""

    cache_ok = True

    def get_col_spec(self, **_: object) -> str:
        return "xid8"
