-- :name ask
-- Ask for something; no row if the same is asked for already, or this step has asked.
INSERT INTO approval (action, subject, params, params_hash, asked_hash, version, requested_by,
                      requester, reason, pipeline, size, needed, role, persons, step_key,
                      created_at, expires_at)
VALUES (%(action)s, %(subject)s, %(params)s::json, %(params_hash)s, %(asked_hash)s, %(version)s,
        %(requested_by)s, %(requester)s, %(reason)s, %(pipeline)s, %(size)s, %(needed)s, %(role)s,
        %(persons)s::json, %(step_key)s, coalesce(%(now)s, now()),
        coalesce(%(now)s, now()) + make_interval(secs => %(expires_s)s))
ON CONFLICT DO NOTHING
RETURNING id

-- :name same_asked
-- What is asked for already, with the same parameters.
SELECT id FROM approval
WHERE state = 'pending' AND step_key IS NULL AND action = %(action)s AND subject = %(subject)s
  AND params_hash = %(params_hash)s

-- :name of_step
-- What a step has asked for.
SELECT id FROM approval WHERE step_key = %(step_key)s

-- :name add_items
-- The transactions that a bulk action is about.
INSERT INTO approval_item (approval_id, tx_id)
SELECT %(id)s, v.tx_id FROM unnest(%(tx_id)s::text[]) AS v (tx_id)

-- :name expire_one
-- The time of a request is over; no row if it is not, or was decided.
UPDATE approval SET state = 'expired', decided_at = coalesce(%(now)s, now())
WHERE id = %(id)s AND state = 'pending' AND expires_at <= coalesce(%(now)s, now())
RETURNING id

-- :name expire_same
-- The same request of long ago, or about another version of its subject, must not stand in the way
-- of a new one.
UPDATE approval
SET state = CASE WHEN expires_at <= coalesce(%(now)s, now()) THEN 'expired' ELSE 'stale' END,
    decided_at = coalesce(%(now)s, now())
WHERE state = 'pending' AND step_key IS NULL AND action = %(action)s AND subject = %(subject)s
  AND params_hash = %(params_hash)s
  AND (expires_at <= coalesce(%(now)s, now()) OR version <> %(version)s)

-- :name expire_due
-- Requests whose time is over.
UPDATE approval SET state = 'expired', decided_at = coalesce(%(now)s, now())
WHERE id IN (SELECT id FROM approval
             WHERE state = 'pending' AND expires_at <= coalesce(%(now)s, now())
             ORDER BY expires_at LIMIT %(limit)s FOR UPDATE SKIP LOCKED)
RETURNING id

-- :name expire_permits
-- An approval that its requester uses later is good for as long as the request was, from its
-- consent on; of all subjects, or of one.
UPDATE approval SET state = 'expired', note = 'it was approved, and not used in time'
WHERE id IN (SELECT id FROM approval
             WHERE state = 'approved' AND action = ANY(%(permits)s)
               AND (%(subject)s::text IS NULL OR subject = %(subject)s)
               AND decided_at + (expires_at - created_at) <= coalesce(%(now)s, now())
             ORDER BY decided_at LIMIT %(limit)s FOR UPDATE SKIP LOCKED)
RETURNING id

-- :name lock
-- No other person decides about it until the commit.
SELECT id FROM approval WHERE id = %(id)s FOR UPDATE

-- :name give
-- What one person says; no row if that person has spoken.
INSERT INTO approval_decision (approval_id, requested_by, decided_by, actor, role, decision, note,
                               created_at)
SELECT id, requested_by, %(decided_by)s, %(actor)s, %(role)s, %(decision)s, %(note)s,
       coalesce(%(now)s, now())
FROM approval WHERE id = %(id)s
ON CONFLICT (approval_id, decided_by) DO NOTHING
RETURNING approval_id

-- :name decide
-- A request is decided; the first half of what was asked for is in the same commit.
UPDATE approval
SET state = %(state)s, note = %(note)s, token = %(token)s, decided_at = coalesce(%(now)s, now())
WHERE id = %(id)s AND state = 'pending'

-- :name break_glass
-- One person acts alone.
UPDATE approval SET break_glass = true WHERE id = %(id)s AND state = 'pending'

-- :name carry_out
-- Held by the process that carries it out; no row if another process is at it, or it is done.
SELECT token FROM approval WHERE id = %(id)s AND state = 'approved'
FOR NO KEY UPDATE SKIP LOCKED

-- :name end
-- What was approved is done, or could not be done.
UPDATE approval
SET state = %(state)s, note = %(note)s,
    executed_at = CASE WHEN %(state)s = 'executed' THEN coalesce(%(now)s, now()) END
WHERE id = %(id)s AND state = 'approved'

-- :name set_aside
-- The subject has moved, so nothing can be approved any more.
UPDATE approval SET state = 'stale', note = %(note)s, decided_at = coalesce(%(now)s, now())
WHERE id = %(id)s AND state = 'pending'

-- :name close_glass
-- Another person has looked into it.
UPDATE approval SET closed_by = %(closed_by)s, closed_at = coalesce(%(now)s, now())
WHERE id = %(id)s AND break_glass AND closed_by IS NULL
RETURNING id

-- :name undone
-- Approved, and not carried out yet; the longest first.
SELECT id FROM approval WHERE state = 'approved' AND action = ANY(%(actions)s)
ORDER BY decided_at, id LIMIT %(limit)s

-- :name approved_for
-- An approval that waits for its requester to come again, in time; locked, so that it is used once.
SELECT id FROM approval
WHERE state = 'approved' AND step_key IS NULL AND action = %(action)s AND subject = %(subject)s
  AND params_hash = %(params_hash)s AND version = %(version)s
  AND decided_at + (expires_at - created_at) > coalesce(%(now)s, now())
ORDER BY id LIMIT 1 FOR UPDATE

-- :name by_ids
-- Requests as they are; one whose time is over is shown so, also before the job has come by.
SELECT id, action, subject, params, params_hash, asked_hash, version, requested_by, requester,
       reason, pipeline, size, needed, role, persons, break_glass, note, created_at, expires_at,
       decided_at, executed_at, closed_by,
       CASE WHEN state = 'pending' AND expires_at <= coalesce(%(now)s, now()) THEN 'expired'
            ELSE state END AS state
FROM approval WHERE id = ANY(%(id)s) ORDER BY id DESC

-- :name page
-- Ids of requests, the newest first; in one state or in all, about one subject or about all.
SELECT id FROM approval
WHERE id < %(before)s AND (%(subject)s::text IS NULL OR subject = %(subject)s)
  AND coalesce(CASE WHEN state = 'pending' AND expires_at <= coalesce(%(now)s, now())
                    THEN 'expired' ELSE state END = %(state)s, true)
ORDER BY id DESC LIMIT %(limit)s

-- :name given
-- What people said about requests, in order.
SELECT approval_id, decided_by, actor, decision, note, created_at FROM approval_decision
WHERE approval_id = ANY(%(id)s) ORDER BY approval_id, created_at, decided_by

-- :name items
-- The transactions of a bulk action that are not dealt with yet.
SELECT tx_id, state, sequence FROM approval_item
WHERE approval_id = %(id)s AND state IN ('open', 'taken') ORDER BY tx_id LIMIT %(limit)s

-- :name all_items
-- The transactions that a request was asked for.
SELECT tx_id FROM approval_item WHERE approval_id = %(id)s

-- :name take_item
-- Noted before it is acted on: where the transaction stood. No row: another process has it.
UPDATE approval_item SET state = 'taken', sequence = %(sequence)s
WHERE approval_id = %(id)s AND tx_id = %(tx_id)s AND state = 'open'
RETURNING tx_id

-- :name end_item
-- What became of one transaction.
UPDATE approval_item SET state = %(state)s, note = %(note)s
WHERE approval_id = %(id)s AND tx_id = %(tx_id)s AND state = 'taken'

-- :name ended_items
-- The transactions of a bulk action that were acted on, and what became of that.
SELECT tx_id, state, note FROM approval_item
WHERE approval_id = %(id)s AND state IN ('done', 'failed') ORDER BY tx_id

-- :name item_counts
-- How many transactions of a bulk action are in which state.
SELECT state, count(*) AS number FROM approval_item WHERE approval_id = %(id)s GROUP BY state
