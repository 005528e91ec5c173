-- :name add
-- A new one, unless one of its kind is running.
INSERT INTO operator_run (kind, params, subject, progress, reason, requester, created_at)
VALUES (%(kind)s, %(params)s::json, %(subject)s::json, %(progress)s::json, %(reason)s,
        %(requester)s::json, coalesce(%(now)s, now()))
ON CONFLICT (kind) WHERE state = 'running' DO NOTHING
RETURNING id

-- :name running_kinds
-- Which kinds there is work for.
SELECT kind FROM operator_run WHERE state = 'running' ORDER BY kind

-- :name running
-- The one of a kind that is running.
SELECT id, kind, state, params::text AS params, subject::text AS subject,
       progress::text AS progress, reason, requester::text AS requester, note, created_at, ended_at
FROM operator_run WHERE kind = %(kind)s AND state = 'running'

-- :name one
-- One by its id.
SELECT id, kind, state, params::text AS params, subject::text AS subject,
       progress::text AS progress, reason, requester::text AS requester, note, created_at, ended_at
FROM operator_run WHERE kind = %(kind)s AND id = %(id)s

-- :name page
-- Those of a kind, the newest first.
SELECT id, kind, state, params::text AS params, subject::text AS subject,
       progress::text AS progress, reason, requester::text AS requester, note, created_at, ended_at
FROM operator_run WHERE kind = %(kind)s AND id < %(before)s ORDER BY id DESC LIMIT %(limit)s

-- :name hold
-- Whether no other process works on this kind; until the end of this transaction. Nothing is
-- written in it: the event feed reads only up to the oldest transaction that writes.
SELECT pg_try_advisory_xact_lock(hashtextextended('operator run ' || %(kind)s, 0)) AS is_held

-- :name set_progress
-- How far it is.
UPDATE operator_run SET progress = %(progress)s::json WHERE id = %(id)s AND state = 'running'

-- :name end
-- It is over; the value that it looked for is forgotten.
UPDATE operator_run
SET state = %(state)s, progress = %(progress)s::json, note = %(note)s, subject = NULL,
    ended_at = coalesce(%(now)s, now())
WHERE id = %(id)s AND state = 'running'
