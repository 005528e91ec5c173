-- What a webhook says is made here, in the statement that makes the event, and stored as text: each
-- attempt sends the same bytes, and no number is changed on its way.

-- :name finish
-- End transactions: the one statement that decides every race. The rows are locked in the order of
-- their ids first, so that two finishers cannot deadlock. `coalesce` keeps the planner from the
-- index of open rows: that is full of rows that were closed since the last vacuum, and all of it
-- would be read. A success must be in time, unless
-- it had passed its point of no return; then no expiry or cancel can end it. The history calls an
-- expiry by the names of the seed, which depend on whether work had begun. A client that asked for
-- a webhook gets it from this commit on, with what it says: no later crash can forget it. So does
-- the payee, unless the transaction ended before work began: then it never heard of it, and a payer
-- could fill the feed of another owner with transactions that it takes back at once.
WITH locked AS MATERIALIZED (
    SELECT tx_id FROM tx_summary
    WHERE tx_id = ANY(%(tx_id)s) AND coalesce(completed_at, 'infinity') = 'infinity'
    ORDER BY tx_id FOR UPDATE
), won AS (
    UPDATE tx_summary s
    SET status = v.status, fence = v.fence, output = v.output::json, note = v.note,
        progress = coalesce(v.progress::json, s.progress),
        completed_at = coalesce(%(now)s, now())
    FROM locked
    JOIN unnest(%(tx_id)s::text[], %(fence)s::bigint[], %(status)s::text[], %(output)s::text[],
                %(note)s::text[], %(progress)s::text[], %(is_begun)s::boolean[])
         AS v (tx_id, fence, status, output, note, progress, is_begun) ON v.tx_id = locked.tx_id
    WHERE s.tx_id = locked.tx_id AND coalesce(s.completed_at, 'infinity') = 'infinity'
      AND s.fence <= v.fence
      AND (v.status NOT IN ('expired', 'cancelled')
           OR (s.no_return_at IS NULL AND s.forwarded_at IS NULL))
      AND (v.status <> 'success' OR s.expires_at IS NULL
           OR s.no_return_at IS NOT NULL OR s.forwarded_at IS NOT NULL
           OR (s.expires_at > coalesce(%(now)s, now()) AND s.expiring_at IS NULL))
    RETURNING s.tx_id, s.status, s.note, s.completed_at, s.expires_at, s.expiring_at,
              s.owner, s.webhook, s.event_count + 1 AS sequence, s.payee, s.pipeline, v.is_begun,
              CASE WHEN s.webhook IS NULL THEN NULL
              WHEN s.webhook_style = 'original' THEN json_build_object(
                  'eventType', 'complete', 'metadata', json_build_object(
                      'owner', s.owner, 'txId', s.tx_id, 'externalId', s.external_id,
                      'transactionType', s.pipeline, 'status', s.status,
                      'completionTime', s.completed_at, 'lastUpdated', s.completed_at,
                      'notifiedTime', s.notified_at, 'sequenceOfUpdate', s.event_count + 1),
                  'progressReport', s.progress, 'data', s.output,
                  'eventTime', s.completed_at)::text
              ELSE json_build_object(
                  'type', 'transaction.completed', 'timestamp', s.completed_at,
                  'data', json_build_object(
                      'txId', s.tx_id, 'externalId', s.external_id, 'pipeline', s.pipeline,
                      'status', s.status, 'sequence', s.event_count + 1, 'output', s.output,
                      'progress', s.progress, 'note', s.note, 'metadata', s.metadata,
                      'createdAt', s.created_at, 'completedAt', s.completed_at))::text END AS body
), logged AS (
    INSERT INTO tx_state_change (tx_id, status, note, created_at, expires_at, owner, detail)
    SELECT tx_id, status, note, completed_at, expires_at, owner,
           CASE WHEN status <> 'expired' THEN NULL WHEN expiring_at IS NULL
                THEN 'EXPIRED_PREPARED' ELSE 'EXPIRED_RESERVED' END
    FROM won
), told AS (
    INSERT INTO tx_event (tx_id, sequence, kind, payload, created_at, owner, id)
    SELECT tx_id, sequence, 'payee',
           json_build_object('txId', tx_id, 'pipeline', pipeline, 'status', status,
                             'payer', owner, 'data', payee -> 'data', 'completedAt', completed_at),
           completed_at, payee ->> 'owner', nextval('tx_event_id')
    FROM won
    WHERE payee IS NOT NULL AND is_begun AND (status <> 'expired' OR expiring_at IS NOT NULL)
), due AS (
    INSERT INTO webhook_delivery (id, tx_id, sequence, kind, owner, url, target, payload, begun_at,
                                  next_at, created_at)
    SELECT 'msg_' || tx_id || '_' || sequence, tx_id, sequence, 'final', owner, webhook,
           split_part(webhook, '?', 1), body, completed_at, completed_at, completed_at
    FROM won WHERE webhook IS NOT NULL
)
SELECT tx_id, owner, CASE WHEN webhook IS NOT NULL THEN sequence END AS due FROM won

-- :name report_progress
-- Record a progress report as the next event of a transaction. Numbered under the lock of the row:
-- no two reports get the same number, and none is left out. The fence is raised to the reporter's,
-- so that one who lost the transaction before cannot report.
WITH locked AS MATERIALIZED (
    SELECT tx_id FROM tx_summary
    WHERE tx_id = %(tx_id)s AND completed_at IS NULL AND fence <= %(fence)s FOR NO KEY UPDATE
), reported AS (
    UPDATE tx_summary s
    SET progress = %(progress)s::json, event_count = s.event_count + 1, fence = %(fence)s
    FROM locked WHERE s.tx_id = locked.tx_id
    RETURNING s.tx_id, s.owner, s.event_count AS sequence,
              CASE WHEN s.progress_reports THEN s.webhook END AS webhook,
              coalesce(%(now)s, now()) AS at,
              CASE WHEN s.webhook IS NULL OR NOT s.progress_reports THEN NULL
              WHEN s.webhook_style = 'original' THEN json_build_object(
                  'eventType', 'progressReport', 'metadata', json_build_object(
                      'owner', s.owner, 'txId', s.tx_id, 'externalId', s.external_id,
                      'transactionType', s.pipeline, 'status', 'running',
                      'completionTime', s.completed_at, 'lastUpdated', coalesce(%(now)s, now()),
                      'notifiedTime', s.notified_at, 'sequenceOfUpdate', s.event_count),
                  'progressReport', s.progress, 'data', s.output,
                  'eventTime', coalesce(%(now)s, now()))::text
              ELSE json_build_object(
                  'type', 'transaction.progress', 'timestamp', coalesce(%(now)s, now()),
                  'data', json_build_object(
                      'txId', s.tx_id, 'externalId', s.external_id, 'pipeline', s.pipeline,
                      'status', 'running', 'sequence', s.event_count, 'output', s.output,
                      'progress', s.progress, 'note', s.note, 'metadata', s.metadata,
                      'createdAt', s.created_at, 'completedAt', s.completed_at))::text END
              AS body
), event AS (
    INSERT INTO tx_event (tx_id, sequence, kind, payload, created_at, owner, id)
    SELECT tx_id, sequence, 'progress', %(progress)s::json, at, owner, nextval('tx_event_id')
    FROM reported
), due AS (
    INSERT INTO webhook_delivery (id, tx_id, sequence, kind, owner, url, target, payload, begun_at,
                                  next_at, created_at)
    SELECT 'msg_' || tx_id || '_' || sequence, tx_id, sequence, 'progress', owner, webhook,
           split_part(webhook, '?', 1), body, at, at, at
    FROM reported WHERE webhook IS NOT NULL
)
SELECT tx_id, owner, sequence, webhook IS NOT NULL AS is_due FROM reported

-- :name raise_fences
-- Shut out the holders of claims that are given up.
WITH locked AS MATERIALIZED (
    SELECT tx_id FROM tx_summary
    WHERE tx_id = ANY(%(tx_id)s) AND coalesce(completed_at, 'infinity') = 'infinity'
    ORDER BY tx_id FOR UPDATE SKIP LOCKED
)
UPDATE tx_summary s SET fence = v.fence + 1
FROM locked
JOIN unnest(%(tx_id)s::text[], %(fence)s::bigint[]) AS v (tx_id, fence)
  ON v.tx_id = locked.tx_id
WHERE s.tx_id = locked.tx_id AND coalesce(s.completed_at, 'infinity') = 'infinity'
  AND s.fence <= v.fence + 1
RETURNING s.tx_id, s.fence

-- :name fence_of_decision
-- As `raise_fences` for one, but a second decision on the same claim gets a fence of its own, also
-- within one millisecond: the journal tells by it whose decision was carried out.
WITH locked AS MATERIALIZED (
    SELECT tx_id, fence FROM tx_summary
    WHERE tx_id = %(tx_id)s AND coalesce(completed_at, 'infinity') = 'infinity'
    FOR UPDATE SKIP LOCKED
)
UPDATE tx_summary s SET fence = greatest(locked.fence, %(fence)s) + 1
FROM locked
WHERE s.tx_id = locked.tx_id AND locked.fence <= %(fence)s + 1
RETURNING s.fence

-- :name take_fences
-- Show the fences of claims; those that hold are returned. Unlike `raise_fences` it waits
-- for a row that is locked: the caller must know who has the transaction before it undoes anything.
WITH locked AS MATERIALIZED (
    SELECT tx_id FROM tx_summary
    WHERE tx_id = ANY(%(tx_id)s) AND coalesce(completed_at, 'infinity') = 'infinity'
    ORDER BY tx_id FOR UPDATE
)
UPDATE tx_summary s SET fence = v.fence
FROM locked
JOIN unnest(%(tx_id)s::text[], %(fence)s::bigint[]) AS v (tx_id, fence)
  ON v.tx_id = locked.tx_id
WHERE s.tx_id = locked.tx_id AND coalesce(s.completed_at, 'infinity') = 'infinity'
  AND s.fence <= v.fence
RETURNING s.tx_id

-- :name mark
-- Show a status that is not final, such as in-doubt, on behalf of the holders of fences. It can be
-- repeated, because a crash may come between this commit and Redis; the history tells only what
-- changed, and names no expiry where there cannot be one any more. People are told of what is in
-- doubt by an alert in the same commit, which is over when it is resolved.
WITH v AS (
    SELECT * FROM unnest(%(tx_id)s::text[], %(fence)s::bigint[], %(note)s::text[])
             AS v (tx_id, fence, note)
), locked AS MATERIALIZED (
    SELECT tx_id, status FROM tx_summary
    WHERE tx_id = ANY(%(tx_id)s) AND coalesce(completed_at, 'infinity') = 'infinity'
    ORDER BY tx_id FOR UPDATE
), marked AS (
    UPDATE tx_summary s SET status = %(status)s, note = v.note, fence = v.fence
    FROM locked JOIN v ON v.tx_id = locked.tx_id
    WHERE s.tx_id = locked.tx_id AND coalesce(s.completed_at, 'infinity') = 'infinity'
      AND s.fence <= v.fence
    RETURNING s.tx_id, s.status, s.note, s.owner, locked.status AS before,
              CASE WHEN s.no_return_at IS NULL AND s.forwarded_at IS NULL
                   THEN s.expires_at END AS expires_at
), logged AS (
    INSERT INTO tx_state_change (tx_id, status, note, created_at, expires_at, owner)
    SELECT tx_id, status, note, coalesce(%(now)s, now()), expires_at, owner FROM marked
    WHERE before <> status
), alarmed AS (
    INSERT INTO alert (kind, subject, summary, created_at)
    SELECT 'in-doubt', tx_id, 'is parked in doubt: ' || note, coalesce(%(now)s, now())
    FROM marked WHERE status = 'in-doubt'
    ON CONFLICT (kind, subject) WHERE cleared_at IS NULL DO NOTHING
), resolved AS (
    UPDATE alert SET cleared_at = coalesce(%(now)s, now())
    WHERE kind = 'in-doubt' AND cleared_at IS NULL
      AND subject = ANY(ARRAY(SELECT tx_id FROM marked WHERE status <> 'in-doubt'))
)
SELECT tx_id FROM marked

-- :name mark_expiring
-- Mark transactions that expire although work had begun, and before a point of no return. Repeating
-- it changes nothing. A row that is locked is passed over, as in `raise_fences`.
WITH locked AS MATERIALIZED (
    SELECT tx_id FROM tx_summary
    WHERE tx_id = ANY(%(tx_id)s) AND coalesce(completed_at, 'infinity') = 'infinity'
      AND no_return_at IS NULL AND forwarded_at IS NULL
    ORDER BY tx_id FOR UPDATE SKIP LOCKED
), marked AS (
    UPDATE tx_summary s SET expiring_at = coalesce(%(now)s, now())
    FROM locked WHERE s.tx_id = locked.tx_id AND s.expiring_at IS NULL
    RETURNING s.tx_id, s.status, s.expires_at, s.expiring_at
), logged AS (
    INSERT INTO tx_state_change (tx_id, status, created_at, expires_at, detail)
    SELECT tx_id, status, expiring_at, expires_at, 'RESERVED_TIMEOUT' FROM marked
)
SELECT tx_id FROM locked

-- :name note_late
-- The history tells, once, that a success was refused.
INSERT INTO tx_state_change (tx_id, status, note, created_at, expires_at, detail)
SELECT tx_id, status, 'a success came too late and was refused', coalesce(%(now)s, now()),
       expires_at, 'LATE_FINISH'
FROM tx_summary s WHERE tx_id = %(tx_id)s AND NOT EXISTS (
    SELECT 1 FROM tx_state_change c WHERE c.tx_id = s.tx_id AND c.detail = 'LATE_FINISH')

-- :name by_ids
-- Transactions as their clients see them.
SELECT tx_id, owner, external_id, pipeline, version, status, fence, input, metadata, output,
       progress, note, created_at, completed_at, expires_at, webhook, progress_reports,
       cancel_webhook_on_poll, event_count, notified_at, trace, submitted_by, origin, erased_at,
       no_return_at, forwarded_at
FROM tx_summary
WHERE tx_id = ANY(%(tx_id)s)

-- :name page
-- A page of all transactions, by id.
SELECT tx_id, owner, external_id, pipeline, version, status, fence, input, metadata, output,
       progress, note, created_at, completed_at, expires_at, webhook, progress_reports,
       cancel_webhook_on_poll, event_count, notified_at, trace, submitted_by, origin, erased_at,
       no_return_at, forwarded_at
FROM tx_summary
WHERE tx_id > %(after)s ORDER BY tx_id LIMIT %(limit)s

-- :name by_external_id
-- The transaction that has an external id.
SELECT tx_id, owner, external_id, pipeline, version, status, fence, input, metadata, output,
       progress, note, created_at, completed_at, expires_at, webhook, progress_reports,
       cancel_webhook_on_poll, event_count, notified_at, trace, submitted_by, origin, erased_at,
       no_return_at, forwarded_at
FROM tx_summary
WHERE owner = %(owner)s AND external_id = %(external_id)s

-- :name server_now
-- The time that decides what has expired.
SELECT now()

-- :name log_page
-- A page of the log of state changes, the newest first.
SELECT id, tx_id, status, created_at FROM tx_state_change
WHERE id < coalesce(%(before)s, 9223372036854775807)
ORDER BY id DESC LIMIT %(limit)s

-- :name count
-- How many transactions there are.
SELECT count(*) FROM tx_summary

-- :name finals
-- The final status of each of these transactions that has ended.
SELECT tx_id, status FROM tx_summary
WHERE tx_id = ANY(%(tx_id)s) AND coalesce(completed_at, 'infinity') < 'infinity'

-- :name open_ids
-- A page of transactions that go on, the oldest first; only what is needed to find them.
SELECT created_at, tx_id FROM tx_summary
WHERE completed_at IS NULL AND (status = 'queued' OR %(in_doubt)s)
  AND created_at BETWEEN %(since)s::timestamptz AND %(until)s::timestamptz
  AND (created_at, tx_id) > (%(after)s::timestamptz, %(after_id)s)
ORDER BY created_at, tx_id LIMIT %(limit)s

-- :name open_ids_newest_first
-- The same, the newest first.
SELECT created_at, tx_id FROM tx_summary
WHERE completed_at IS NULL AND (status = 'queued' OR %(in_doubt)s)
  AND created_at BETWEEN %(since)s::timestamptz AND %(until)s::timestamptz
  AND (created_at, tx_id) < (%(after)s::timestamptz, %(after_id)s)
ORDER BY created_at DESC, tx_id DESC LIMIT %(limit)s
