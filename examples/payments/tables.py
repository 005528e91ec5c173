"""The books: accounts, double entries and reservations. Amounts are minor units, never floats."""

from __future__ import annotations

from sqlalchemy import (
    BigInteger,
    Boolean,
    CheckConstraint,
    Column,
    DateTime,
    Engine,
    ForeignKey,
    Identity,
    Index,
    MetaData,
    Table,
    Text,
    UniqueConstraint,
    func,
    select,
    text,
)
from sqlalchemy.schema import CreateSchema

#: A schema of its own: the example never mixes with the engine's tables in the same database.
metadata = MetaData(schema="payments")

#: Any number that no other lock in the database uses.
CREATE_LOCK = 7_205_759_403

#: `balance` and `held` are kept beside the entries, so that the database itself can refuse a
#: payment that is not covered; `ledger.audit` compares them with the entries.
account = Table(
    "account",
    metadata,
    Column("id", Text, primary_key=True),
    Column("currency", Text, nullable=False),
    #: A house account is where money comes from; it may be below zero.
    Column("is_house", Boolean, nullable=False, server_default=text("false")),
    Column("balance", BigInteger, nullable=False, server_default=text("0")),
    Column("held", BigInteger, nullable=False, server_default=text("0")),
    Column("created_at", DateTime(timezone=True), nullable=False, server_default=func.now()),
    CheckConstraint("id <> ''", name="account_id"),
    CheckConstraint("currency ~ '^[A-Z]{3}$'", name="account_currency"),
    CheckConstraint("held >= 0", name="account_held"),
    CheckConstraint("is_house OR balance - held >= 0", name="account_covered"),
)

#: Two rows per movement, which add up to zero.
ledger_entry = Table(
    "ledger_entry",
    metadata,
    Column("id", BigInteger, Identity(always=True), primary_key=True),
    Column("tx_id", Text, nullable=False),
    Column("account", Text, ForeignKey(account.c.id), nullable=False),
    Column("amount", BigInteger, nullable=False),
    Column("kind", Text, nullable=False),
    Column("created_at", DateTime(timezone=True), nullable=False, server_default=func.now()),
    CheckConstraint("amount <> 0", name="ledger_entry_amount"),
    CheckConstraint("kind IN ('deposit', 'transfer', 'reversal')", name="ledger_entry_kind"),
    # The same movement cannot be booked twice, whatever goes wrong above.
    UniqueConstraint("tx_id", "account", "kind", name="ledger_entry_once"),
    Index("ledger_entry_account", "account"),
)

#: Money set aside for one transaction; it stays in the account until it is committed.
reservation = Table(
    "reservation",
    metadata,
    Column("tx_id", Text, primary_key=True),
    Column("account", Text, ForeignKey(account.c.id), nullable=False),
    Column("amount", BigInteger, nullable=False),
    Column("state", Text, nullable=False, server_default=text("'held'")),
    Column("created_at", DateTime(timezone=True), nullable=False, server_default=func.now()),
    Column("ended_at", DateTime(timezone=True)),
    CheckConstraint("amount > 0", name="reservation_amount"),
    CheckConstraint(
        "state IN ('held', 'committed', 'released', 'reversed')", name="reservation_state"
    ),
    CheckConstraint("(state = 'held') = (ended_at IS NULL)", name="reservation_ended"),
    Index("reservation_held", "account", postgresql_where=text("state = 'held'")),
)

#: Which settlement an entry went into; it can be in one only.
settled_entry = Table(
    "settled_entry",
    metadata,
    Column("entry_id", BigInteger, ForeignKey(ledger_entry.c.id), primary_key=True),
    Column("tx_id", Text, nullable=False),
    #: The batch in the outside ledger, once it is committed there.
    Column("batch", Text),
    Index("settled_entry_tx", "tx_id"),
)


def create_tables(engine: Engine) -> None:
    """Make what is missing. Several at once are harmless: a lock lets one through at a time."""
    with engine.begin() as connection:
        connection.execute(select(func.pg_advisory_xact_lock(CREATE_LOCK)))
        connection.execute(CreateSchema("payments", if_not_exists=True))
        metadata.create_all(connection)
