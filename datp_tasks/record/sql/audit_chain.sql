-- :name lock
-- One process seals at a time; the lock ends with the transaction.
SELECT pg_advisory_xact_lock(7205759404)

-- :name head
-- The last seal.
SELECT position, action_id, hash FROM audit_seal ORDER BY position DESC LIMIT 1

-- :name unsealed
-- Actions without a seal, in the order of their ids. One whose transaction committed late has a
-- lower id than some that are sealed, so the look goes back a little.
SELECT a.id, a.actor, a.key_id, a.request_id, a.address, a.action, a.subject, a.reason,
       a.details::text AS details, a.created_at
FROM operator_action a
LEFT JOIN audit_seal s ON s.action_id = a.id
WHERE a.id > (SELECT coalesce(max(action_id), 0) - %(look_back)s FROM audit_seal)
  AND s.action_id IS NULL
ORDER BY a.id LIMIT %(limit)s

-- :name add
-- Add seals at the end of the chain.
INSERT INTO audit_seal (position, action_id, hash)
SELECT * FROM unnest(%(position)s::bigint[], %(action_id)s::bigint[], %(hash)s::text[])

-- :name page
-- Seals in their order, each with its action as it is now.
SELECT s.position, s.action_id, s.hash, a.id, a.actor, a.key_id, a.request_id, a.address, a.action,
       a.subject, a.reason, a.details::text AS details, a.created_at
FROM audit_seal s
LEFT JOIN operator_action a ON a.id = s.action_id
WHERE s.position > %(after)s ORDER BY s.position LIMIT %(limit)s

-- :name left_out
-- Actions that were never sealed although later ones are: they were put in afterwards.
SELECT a.id FROM operator_action a
LEFT JOIN audit_seal s ON s.action_id = a.id
WHERE a.id <= (SELECT coalesce(max(action_id), 0) - %(look_back)s FROM audit_seal)
  AND s.action_id IS NULL
ORDER BY a.id LIMIT %(limit)s

-- :name erasures
-- What was erased, as those who did it noted.
SELECT details::text AS details FROM operator_action WHERE action = 'erase'

-- :name listed
-- Actions, the newest first, as far as they match.
SELECT a.id, a.actor, a.key_id, a.request_id, a.address, a.action, a.subject, a.reason,
       a.details::text AS details, a.created_at, s.position, s.hash
FROM operator_action a
LEFT JOIN audit_seal s ON s.action_id = a.id
WHERE (%(subject)s::text IS NULL OR a.subject = %(subject)s)
  AND coalesce(a.key_id = %(key_id)s, true)
  AND coalesce(a.action = %(action)s, true) AND coalesce(a.id < %(before)s, true)
ORDER BY a.id DESC LIMIT %(limit)s
