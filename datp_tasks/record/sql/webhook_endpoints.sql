-- :name list_endpoints
-- Endpoints, the oldest first; NULL means any owner, or from the first on.
SELECT id, owner, url, types, description, enabled, disabled_reason, created_at, updated_at,
       xact::text, part, row_id, replay_xact::text, replay_part, replay_row_id, replay_from,
       replay_to
FROM webhook_endpoint
WHERE (%(owner)s::text IS NULL OR owner = %(owner)s)
  AND (created_at, id) > (coalesce(%(after)s::timestamptz, '-infinity'), %(after_id)s)
ORDER BY created_at, id LIMIT %(limit)s

-- :name find
-- An endpoint by its id, with an owner only if it is that owner's.
SELECT id, owner, url, types, description, enabled, disabled_reason, created_at, updated_at,
       xact::text, part, row_id, replay_xact::text, replay_part, replay_row_id, replay_from,
       replay_to
FROM webhook_endpoint
WHERE id = %(id)s AND (%(owner)s::text IS NULL OR owner = %(owner)s)

-- :name hold_owner
-- One at a time adds endpoints of an owner, so that the limit holds.
SELECT pg_advisory_xact_lock(hashtextextended('webhook_endpoint ' || %(owner)s, 0))

-- :name count
-- How many endpoints an owner has.
SELECT count(*) FROM webhook_endpoint WHERE owner = %(owner)s

-- :name add
-- A new endpoint: it is told of what commits from now on.
INSERT INTO webhook_endpoint (id, owner, url, types, description, enabled, created_at, updated_at,
                              xact, part, row_id)
VALUES (%(id)s, %(owner)s, %(url)s, %(types)s::json, %(description)s, true,
        coalesce(%(now)s, now()), coalesce(%(now)s, now()),
        pg_snapshot_xmin(pg_current_snapshot()), 0, 0)
RETURNING id, owner, url, types, description, enabled, disabled_reason, created_at, updated_at,
          xact::text, part, row_id, replay_xact::text, replay_part, replay_row_id, replay_from,
          replay_to

-- :name change
-- Other values for an endpoint; NULL leaves one as it is. One that is enabled again is told of what
-- commits from now on; a replay ends when it is disabled.
UPDATE webhook_endpoint
SET url = coalesce(%(url)s, url), types = coalesce(%(types)s::json, types),
    description = coalesce(%(description)s, description),
    enabled = coalesce(%(enabled)s, enabled), updated_at = coalesce(%(now)s, now()),
    disabled_reason = CASE WHEN %(enabled)s THEN NULL ELSE disabled_reason END,
    xact = CASE WHEN %(enabled)s AND NOT enabled
                THEN pg_snapshot_xmin(pg_current_snapshot()) ELSE xact END,
    part = CASE WHEN %(enabled)s AND NOT enabled THEN 0 ELSE part END,
    row_id = CASE WHEN %(enabled)s AND NOT enabled THEN 0 ELSE row_id END,
    replay_xact = CASE WHEN %(enabled)s::boolean = false THEN NULL ELSE replay_xact END,
    replay_part = CASE WHEN %(enabled)s::boolean = false THEN NULL ELSE replay_part END,
    replay_row_id = CASE WHEN %(enabled)s::boolean = false THEN NULL ELSE replay_row_id END,
    replay_from = CASE WHEN %(enabled)s::boolean = false THEN NULL ELSE replay_from END,
    replay_to = CASE WHEN %(enabled)s::boolean = false THEN NULL ELSE replay_to END
WHERE id = %(id)s

-- :name move_pending
-- What waits for an endpoint goes to its new URL.
UPDATE webhook_delivery SET url = %(url)s, target = split_part(%(url)s, '?', 1)
WHERE endpoint_id = %(id)s AND state = 'pending'

-- :name cancel_pending
-- What waits for an endpoint that is disabled or deleted is not sent.
UPDATE webhook_delivery
SET state = 'cancelled', finished_at = coalesce(%(now)s, now()), held = false
WHERE endpoint_id = %(id)s AND state = 'pending'

-- :name disable
-- The endpoint takes nothing any more; no row if it was disabled before, or has another URL.
UPDATE webhook_endpoint
SET enabled = false, disabled_reason = %(reason)s, updated_at = coalesce(%(now)s, now()),
    replay_xact = NULL, replay_part = NULL, replay_row_id = NULL, replay_from = NULL,
    replay_to = NULL
WHERE id = %(id)s AND enabled AND split_part(url, '?', 1) = %(target)s RETURNING owner

-- :name delete
-- The endpoint is gone; its deliveries stay as long as others do.
DELETE FROM webhook_endpoint WHERE id = %(id)s

-- :name drop_secrets
-- What signed for an endpoint that is gone.
DELETE FROM webhook_secret WHERE owner = %(signer)s
  AND NOT EXISTS (SELECT 1 FROM webhook_endpoint WHERE id = %(id)s)

-- :name due
-- Endpoints for which there are events after their place, or a replay goes on. Those of owners
-- without endpoints cost nothing here: their rows are never looked at.
SELECT e.id FROM webhook_endpoint e
WHERE e.enabled AND (
    e.replay_to IS NOT NULL
    OR EXISTS (SELECT 1 FROM tx_state_change c
               WHERE c.owner = e.owner AND c.xact < pg_snapshot_xmin(pg_current_snapshot())
                 AND (c.xact, c.id) > (e.xact, CASE e.part WHEN 0 THEN e.row_id
                                               ELSE 9223372036854775807 END))
    OR EXISTS (SELECT 1 FROM tx_event r
               WHERE r.owner = e.owner AND r.xact < pg_snapshot_xmin(pg_current_snapshot())
                 AND (r.xact, r.id) > (e.xact, CASE e.part WHEN 1 THEN e.row_id ELSE 0 END)))
ORDER BY random() LIMIT %(limit)s

-- :name lock
-- Become the only one who feeds an endpoint; no row if another process does.
SELECT id, owner, url, types, description, enabled, disabled_reason, created_at, updated_at,
       xact::text, part, row_id, replay_xact::text, replay_part, replay_row_id, replay_from,
       replay_to
FROM webhook_endpoint WHERE id = %(id)s AND enabled FOR UPDATE SKIP LOCKED

-- :name advance
-- Where an endpoint goes on.
UPDATE webhook_endpoint SET xact = %(xact)s::xid8, part = %(part)s, row_id = %(row_id)s
WHERE id = %(id)s

-- :name replay
-- Tell an endpoint again of what happened in a time; no row while another replay goes on.
UPDATE webhook_endpoint
SET replay_xact = %(xact)s::xid8, replay_part = %(part)s, replay_row_id = %(row_id)s,
    replay_from = %(since)s, replay_to = %(until)s
WHERE id = %(id)s AND enabled AND replay_to IS NULL RETURNING id

-- :name advance_replay
-- Where a replay goes on.
UPDATE webhook_endpoint
SET replay_xact = %(xact)s::xid8, replay_part = %(part)s, replay_row_id = %(row_id)s
WHERE id = %(id)s

-- :name end_replay
-- A replay has come to its end.
UPDATE webhook_endpoint
SET replay_xact = NULL, replay_part = NULL, replay_row_id = NULL, replay_from = NULL,
    replay_to = NULL
WHERE id = %(id)s

-- :name add_deliveries
-- Deliveries to an endpoint, each event once. The number takes the place of an event's sequence: it
-- is far above any, so that a poll that cancels a transaction's own webhook leaves these alone. It
-- is drawn, because a counter in the webhook-id would tell an owner how many others are sent. If
-- one transaction draws a number twice, the commit fails and is tried again with others.
-- What is told again goes out again under the id that it had.
WITH v AS (
    SELECT * FROM unnest(%(tx_id)s::text[], %(event_id)s::text[], %(payload)s::text[])
             AS v (tx_id, event_id, payload)
), numbered AS MATERIALIZED (
    SELECT v.*, 1000000000 + floor(random() * 1147483647)::integer AS number FROM v
)
INSERT INTO webhook_delivery AS d (id, tx_id, sequence, kind, owner, url, target, payload, begun_at,
                                   next_at, created_at, endpoint_id, event_id)
SELECT 'msg_' || tx_id || '_' || number, tx_id, number, %(kind)s, %(owner)s, %(url)s,
       split_part(%(url)s, '?', 1), payload, coalesce(%(now)s, now()), coalesce(%(now)s, now()),
       coalesce(%(now)s, now()), %(endpoint_id)s, event_id
FROM numbered
ON CONFLICT (endpoint_id, event_id) WHERE endpoint_id IS NOT NULL DO UPDATE
SET state = 'pending', finished_at = NULL, attempts_before = d.attempts, held = false,
    begun_at = excluded.begun_at, next_at = excluded.next_at, url = excluded.url,
    target = excluded.target
WHERE %(again)s AND d.state <> 'pending' AND d.payload <> ''
RETURNING d.id, d.tx_id, d.sequence, d.owner
