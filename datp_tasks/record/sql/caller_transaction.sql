-- Statements in the transaction of a caller. Its own savepoints are never named.

-- :name savepoint
-- What fails after this is undone without ending the caller's transaction.
SAVEPOINT datp_item

-- :name release
-- What was done since stays, if the caller commits.
RELEASE SAVEPOINT datp_item

-- :name undo
-- Nothing was done since.
ROLLBACK TO SAVEPOINT datp_item; RELEASE SAVEPOINT datp_item

-- :name savepoint_call
-- A call can fail or be cancelled between two batches: all of it is undone.
SAVEPOINT datp_call

-- :name release_call
-- What the call did stays, if the caller commits.
RELEASE SAVEPOINT datp_call

-- :name undo_call
-- The call did nothing.
ROLLBACK TO SAVEPOINT datp_call; RELEASE SAVEPOINT datp_call

-- :name place
-- Which server, database and table the statements of this connection reach. The server's number is
-- that of its data directory: it is the same by whatever address or pooler one comes.
SELECT (SELECT system_identifier FROM pg_control_system())::text || ' '
       || (SELECT oid FROM pg_database WHERE datname = current_database())::text || ' '
       || coalesce(to_regclass('tx_summary')::oid::text, '') AS place,
       current_database()::text AS database, to_regclass('tx_summary') IS NOT NULL AS has_tables,
       clock_timestamp() AS now

-- :name number
-- The caller's transaction.
SELECT pg_current_xact_id()::text AS xact

-- :name standing
-- What became of rows of callers: those that are committed, and those whose transaction is over. A
-- savepoint may have been rolled back, so a transaction that is over says nothing of its rows.
SELECT v.tx_id, s.status = 'queued' AS is_queued,
       pg_visible_in_snapshot(v.xact::xid8, pg_current_snapshot()) AS is_over
FROM unnest(%(tx_id)s::text[], %(xact)s::text[]) AS v (tx_id, xact)
LEFT JOIN tx_summary s ON s.tx_id = v.tx_id
