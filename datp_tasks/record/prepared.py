"""Statements that PostgreSQL parses and plans once for each connection, and then only executes.

For one row, parsing and planning the end of a transaction cost more than executing it. Nothing
relies on a server that knows a name. A pooler may give each statement another connection, or an
administrator may discard what was prepared: then a statement has done nothing, and is sent whole.
A name is made from the text, so two releases behind one pooler never mean different statements by
one name.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from functools import lru_cache
from hashlib import sha256
from typing import NamedTuple

#: A plan is made for tables as large as they are then: for a nearly empty one it reads all rows.
#: After a second it is made anew, so that it does not read all rows of a table that has grown.
#: (Where a pooler shares connections, a plan may be kept until another client discards it.)
PLAN_MAX_S = 1.0

_PARAMETER = re.compile(r"%\((\w+)\)s")


class PreparedStatement(NamedTuple):
    """The statements for one text; each takes the parameters of the text."""

    name: str
    prepare: str
    execute: str


@lru_cache(maxsize=64)
def prepared(sql: str) -> PreparedStatement:
    """Parameters get the types that the text needs, as nothing else is said about them."""
    names = list(dict.fromkeys(_PARAMETER.findall(sql)))
    numbered = _PARAMETER.sub(lambda found: f"${names.index(found[1]) + 1}", sql)
    # The first word tells those who look at the server, and our tests, whether it writes.
    name = f"datp_{sql.split(None, 1)[0].lower()}_{sha256(sql.encode()).hexdigest()[:16]}"
    values = ", ".join(f"%({each})s" for each in names)
    arguments = f" ({values})" if values else ""
    return PreparedStatement(name, f"PREPARE {name} AS {numbered}", f"EXECUTE {name}{arguments}")


@dataclass(slots=True)
class Plans:
    """What one connection has prepared, as far as its user knows."""

    names: set[str] = field(default_factory=set)
    #: When its plans were made or discarded last.
    made_s: float = 0.0

    def text_for(self, statement: PreparedStatement, now_s: float) -> str:
        """What to send now; one round trip in any case."""
        is_known = statement.name in self.names
        texts = [] if is_known else [statement.prepare]
        if now_s - self.made_s > PLAN_MAX_S:
            self.made_s = now_s
            texts.insert(0, "DISCARD PLANS")
        self.names.add(statement.name)
        return "; ".join([*texts, statement.execute])
