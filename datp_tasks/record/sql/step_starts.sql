-- :name mark
-- Write down that steps begin; only the first try of each step is returned.
INSERT INTO step_begun (tx_id, step_key, fence)
SELECT * FROM unnest(%(tx_id)s::text[], %(step_key)s::text[], %(fence)s::bigint[])
ON CONFLICT (tx_id, step_key) DO NOTHING RETURNING tx_id

-- :name forget
-- An operator or a probe decided that a try had no effect.
DELETE FROM step_begun WHERE tx_id = %(tx_id)s AND step_key = %(step_key)s

-- :name of_transaction
-- The steps of a transaction that began, in order, with their fences.
SELECT step_key, fence FROM step_begun WHERE tx_id = %(tx_id)s ORDER BY begun_at
