-- :name delete
-- Make room for newer copies of states.
DELETE FROM tx_state WHERE tx_id = ANY(%(tx_id)s)

-- :name copy_in
-- Take copies of states from a stream.
COPY tx_state (tx_id, version, status, fields, archived_at) FROM STDIN (ENCODING 'UTF8')

-- :name load
-- The archived fields of transactions.
SELECT tx_id, version, fields FROM tx_state WHERE tx_id = ANY(%(tx_id)s)

-- :name statuses
-- The archived status of transactions, without the fields, which may be large.
SELECT tx_id, status FROM tx_state WHERE tx_id = ANY(%(tx_id)s)

-- :name versions
-- Which version of each transaction is archived.
SELECT tx_id, version FROM tx_state WHERE tx_id = ANY(%(tx_id)s::text[])
