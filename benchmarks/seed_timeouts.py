"""The seed's timeout handler on PostgreSQL: its ten steps as they were written for MySQL.

Only what it needs to run was changed: one spelling of @intervalMin, PostgreSQL's way to delete
with a join, ON CONFLICT where a plain INSERT breaks on a key that is there already, and an
upsert of the segment. Its index on (transferId) became (transferId, transferStateChangeId), as
InnoDB's indexes carry the primary key. Step 8 is not part of the study; here it marks what was
listed as expired, by the statement that the study itself offers for that.
"""

from __future__ import annotations

from sqlalchemy import Connection, Engine

TABLES = """
CREATE SCHEMA seed;
CREATE TABLE seed.transfer (
    transfer_id varchar(36) PRIMARY KEY,
    amount numeric(18, 4) NOT NULL,
    currency_id varchar(3) NOT NULL,
    expiration_date timestamptz NOT NULL,
    created_date timestamptz NOT NULL DEFAULT now()
);
CREATE TABLE seed.transfer_state_change (
    transfer_state_change_id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    transfer_id varchar(36) NOT NULL,
    transfer_state_id varchar(50) NOT NULL,
    reason varchar(512),
    created_date timestamptz NOT NULL DEFAULT now()
);
CREATE INDEX ON seed.transfer_state_change (transfer_id, transfer_state_change_id);
CREATE INDEX ON seed.transfer_state_change (transfer_state_id);
CREATE TABLE seed.segment (
    segment_id integer GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    segment_type varchar(50) NOT NULL,
    enumeration integer NOT NULL DEFAULT 0,
    table_name varchar(50) NOT NULL,
    value bigint NOT NULL,
    changed_date timestamptz NOT NULL DEFAULT now(),
    UNIQUE (segment_type, enumeration, table_name)
);
CREATE TABLE seed.transfer_timeout (
    transfer_timeout_id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    transfer_id varchar(36) NOT NULL UNIQUE REFERENCES seed.transfer (transfer_id),
    expiration_date timestamptz NOT NULL,
    created_date timestamptz NOT NULL DEFAULT now()
);
"""

STEP_1 = """
SELECT value FROM seed.segment
WHERE segment_type = 'timeout' AND enumeration = 0 AND table_name = 'transferStateChange'
"""

STEP_3 = """
DELETE FROM seed.transfer_timeout AS tt
USING (SELECT tsc.transfer_id, MAX(tsc.transfer_state_change_id) AS max_id
       FROM seed.transfer_timeout tt1
       JOIN seed.transfer_state_change tsc ON tsc.transfer_id = tt1.transfer_id
       GROUP BY tsc.transfer_id) ts
JOIN seed.transfer_state_change tsc ON tsc.transfer_state_change_id = ts.max_id
WHERE ts.transfer_id = tt.transfer_id
  AND tsc.transfer_state_id IN ('RECEIVED_FULFIL', 'COMMITTED', 'FAILED', 'EXPIRED',
      'EXPIRED_PREPARED', 'EXPIRED_RESERVED', 'REJECTED', 'ABORTED')
"""

STEP_4 = "SELECT MAX(transfer_state_change_id) FROM seed.transfer_state_change"

STEP_6 = """
INSERT INTO seed.transfer_timeout (transfer_id, expiration_date)
SELECT t.transfer_id, t.expiration_date
FROM seed.transfer t
JOIN (SELECT transfer_id, MAX(transfer_state_change_id) AS max_id
      FROM seed.transfer_state_change
      WHERE transfer_state_change_id > %(interval_min)s
        AND transfer_state_change_id <= %(interval_max)s
      GROUP BY transfer_id) ts ON ts.transfer_id = t.transfer_id
JOIN seed.transfer_state_change tsc ON tsc.transfer_state_change_id = ts.max_id
WHERE tsc.transfer_state_id IN ('RECEIVED_PREPARE', 'RESERVED')
ON CONFLICT (transfer_id) DO NOTHING
"""

STEP_7 = """
SELECT tt.transfer_id FROM seed.transfer_timeout tt WHERE tt.expiration_date < now()
"""

STEP_8 = """
INSERT INTO seed.transfer_state_change (transfer_id, transfer_state_id)
SELECT t.transfer_id, 'EXPIRED'
FROM seed.transfer t
JOIN seed.transfer_timeout tt ON tt.transfer_id = t.transfer_id
WHERE tt.expiration_date < now()
"""

STEP_9 = """
INSERT INTO seed.segment (segment_type, enumeration, table_name, value)
VALUES ('timeout', 0, 'transferStateChange', %(interval_max)s)
ON CONFLICT (segment_type, enumeration, table_name) DO UPDATE SET value = EXCLUDED.value
"""

WITHOUT_INTERMEDIATE = """
SELECT t.transfer_id, t.expiration_date, tsc.transfer_state_id, ts.max_id
FROM seed.transfer t
JOIN (SELECT transfer_id, MAX(transfer_state_change_id) AS max_id
      FROM seed.transfer_state_change GROUP BY transfer_id) ts ON ts.transfer_id = t.transfer_id
JOIN seed.transfer_state_change tsc ON tsc.transfer_state_change_id = ts.max_id
WHERE tsc.transfer_state_id IN ('RECEIVED_PREPARE', 'RESERVED') AND t.expiration_date < now()
LIMIT 100000
"""


def run_once(engine: Engine, *, expire: bool = False) -> int:
    """Steps 1 to 10; how many it lists as due. `expire`: step 8 marks them."""
    with engine.connect() as connection:
        interval_min = connection.exec_driver_sql(STEP_1).scalar() or 0
        connection.exec_driver_sql(STEP_3)
        connection.commit()
        interval_max = connection.exec_driver_sql(STEP_4).scalar() or 0
        connection.commit()
        return _steps_5_to_10(connection, interval_min, interval_max, expire)


def _steps_5_to_10(
    connection: Connection, interval_min: int, interval_max: int, expire: bool
) -> int:
    limits = {"interval_min": interval_min, "interval_max": interval_max}
    connection.exec_driver_sql(STEP_6, limits)
    due = len(connection.exec_driver_sql(STEP_7).all())
    if expire:
        connection.exec_driver_sql(STEP_8)
    connection.exec_driver_sql(STEP_9, limits)
    connection.commit()
    return due


def list_without_intermediate(engine: Engine) -> int:
    """The query that the whole design set out to avoid."""
    with engine.connect() as connection:
        return len(connection.exec_driver_sql(WITHOUT_INTERMEDIATE).all())
