"""What the application's own role may do in the database: everything it needs, and to the audit
only add. The tables belong to the role that runs `datp migrate`.
"""

from __future__ import annotations

import re

from sqlalchemy import Engine

from datp_tasks.errors import SettingsError

ROLE = re.compile(r"[a-z_][a-z0-9_]{0,62}")
#: Rows of these are only ever added.
APPEND_ONLY = ("operator_action", "audit_seal")


def rights_sql(role: str, *, schema: str = "public") -> list[str]:
    """Statements that give an existing role what the application needs; safe to repeat."""
    for name in (role, schema):
        if not ROLE.fullmatch(name):
            raise SettingsError(f"{name!r:.100} is no name that needs no quotes in PostgreSQL")
    kept = ", ".join(f"{schema}.{table}" for table in APPEND_ONLY)
    return [
        f"GRANT USAGE ON SCHEMA {schema} TO {role}",
        f"GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA {schema} TO {role}",
        f"GRANT SELECT, USAGE ON ALL SEQUENCES IN SCHEMA {schema} TO {role}",
        f"REVOKE UPDATE, DELETE, TRUNCATE, REFERENCES, TRIGGER ON {kept} FROM {role}",
    ]


def apply_rights(engine: Engine, role: str) -> None:
    """All or nothing, as the role that owns the tables."""
    with engine.begin() as connection:
        for statement in rights_sql(role):
            connection.exec_driver_sql(statement)
