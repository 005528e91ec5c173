-- :name may_erase
-- Whether this role may take texts out of the audit.
SELECT has_table_privilege('operator_action', 'UPDATE') AS may

-- :name page
-- Transactions that are not erased, by id, with what a subject is looked for in.
SELECT tx_id, input, metadata, output FROM tx_summary
WHERE erased_at IS NULL AND (%(owner)s::text IS NULL OR owner = %(owner)s)
  AND tx_id > %(after)s
ORDER BY tx_id LIMIT %(limit)s

-- :name erased_ids
-- What was erased, for files of the journal that another host has.
SELECT tx_id FROM tx_summary WHERE erased_at IS NOT NULL ORDER BY tx_id

-- :name one_at_a_time
-- Of two erasures at once neither would see that the other takes the last that had a value.
SELECT pg_advisory_xact_lock(hashtextextended('datp erasure', 0))

-- :name lock_approvals
-- No person decides about these, their batches, or many of which they are some, until the commit.
-- What is being carried out is held for as long as that takes: it is not waited for, but told.
SELECT a.id FROM approval a
WHERE (a.subject = ANY(%(tx_id)s || ARRAY(
           SELECT b.service_id || '/' || b.batch_id FROM ledger_batch b
           WHERE b.tx_id = ANY(%(tx_id)s)))
       OR a.id = ANY(ARRAY(SELECT i.approval_id FROM approval_item i
                           WHERE i.tx_id = ANY(%(tx_id)s))))
  AND a.state <> 'approved'
ORDER BY a.id FOR UPDATE

-- :name lock_approvals_about
-- No person decides about these batches until the commit.
SELECT id FROM approval WHERE subject = ANY(%(subject)s) AND state <> 'approved'
ORDER BY id FOR UPDATE

-- :name lock
-- Nothing of these transactions changes until the commit.
SELECT tx_id FROM tx_summary WHERE tx_id = ANY(%(tx_id)s) ORDER BY tx_id FOR UPDATE

-- :name lock_deliveries
-- None of their deliveries is asked for again until the commit.
SELECT id FROM webhook_delivery WHERE tx_id = ANY(%(tx_id)s) ORDER BY id FOR UPDATE

-- :name found
-- What decides whether transactions may be erased.
SELECT t.tx_id, t.status, t.completed_at IS NOT NULL AS is_final, t.erased_at,
       EXISTS (SELECT 1 FROM webhook_delivery d
               WHERE d.tx_id = t.tx_id AND d.state = 'pending') AS is_told,
       (SELECT b.service_id || '/' || b.batch_id FROM ledger_batch b
        WHERE b.tx_id = t.tx_id AND b.final_at IS NULL LIMIT 1) AS open_batch,
       coalesce(
           (SELECT a.id FROM approval a
            WHERE a.subject = ANY(t.tx_id || ARRAY(
                      SELECT b.service_id || '/' || b.batch_id FROM ledger_batch b
                      WHERE b.tx_id = t.tx_id))
              AND (a.state = 'approved' OR (a.break_glass AND a.closed_by IS NULL))
            ORDER BY a.id LIMIT 1),
           -- Of many: its filter may name this one, and is not changed before all are done.
           (SELECT a.id FROM approval_item i JOIN approval a ON a.id = i.approval_id
            WHERE i.tx_id = t.tx_id AND a.state = 'approved'
            ORDER BY a.id LIMIT 1)) AS open_approval
FROM tx_summary t WHERE t.tx_id = ANY(%(tx_id)s)

-- :name erase_journal
-- Rows of journals without their payloads. Their hashes stay, so that the chain goes on.
UPDATE tx_journal j
SET entries = v.entries, content_hash = v.content_hash, erased_hash = v.erased_hash
FROM unnest(%(tx_id)s::text[], %(number)s::int[], %(entries)s::text[], %(content_hash)s::text[],
            %(erased_hash)s::text[]) AS v (tx_id, number, entries, content_hash, erased_hash)
WHERE j.tx_id = v.tx_id AND j.number = v.number

-- :name erase
-- The payloads of transactions, wherever they are. Ids, statuses, times, attempts, hashes and
-- fingerprints stay. What an operator wrote about them and what a ledger confirmed leaves its
-- SHA-256.
WITH chosen AS (
    SELECT unnest(%(tx_id)s::text[]) AS tx_id
), states AS (DELETE FROM tx_state r USING chosen c WHERE r.tx_id = c.tx_id
), signals AS (DELETE FROM tx_signal r USING chosen c WHERE r.tx_id = c.tx_id
), attributes AS (DELETE FROM tx_attribute r USING chosen c WHERE r.tx_id = c.tx_id
), changes AS (
    UPDATE tx_state_change r SET note = NULL FROM chosen c
    WHERE r.tx_id = c.tx_id AND r.note IS NOT NULL
), effects AS (
    UPDATE step_effect r SET output = NULL FROM chosen c
    WHERE r.tx_id = c.tx_id AND r.output IS NOT NULL
), events AS (UPDATE tx_event r SET payload = 'null' FROM chosen c WHERE r.tx_id = c.tx_id
), attempts AS (
    UPDATE webhook_attempt r SET error = NULL
    FROM chosen c JOIN webhook_delivery d ON d.tx_id = c.tx_id
    WHERE r.delivery_id = d.id AND r.error IS NOT NULL
), deliveries AS (
    UPDATE webhook_delivery r SET url = '', target = '', payload = '', last_error = NULL
    FROM chosen c WHERE r.tx_id = c.tx_id
), alerts AS (
    UPDATE alert r SET summary = 'erased' FROM chosen c WHERE r.subject = c.tx_id
), actions AS (
    UPDATE operator_action r SET reason = NULL, details = json_build_object(
        'erased', encode(sha256(convert_to(coalesce(r.details::text, ''), 'UTF8')), 'hex'),
        'erasedReason', encode(sha256(convert_to(coalesce(r.reason, ''), 'UTF8')), 'hex'))
    FROM chosen c WHERE r.subject = c.tx_id AND coalesce(r.details ->> 'erased', '') = ''
), items AS (
    UPDATE approval_item r SET note = NULL FROM chosen c WHERE r.tx_id = c.tx_id
)
UPDATE tx_summary r
SET input = '{}', metadata = NULL, output = NULL, progress = NULL, webhook = NULL,
    stop_request = NULL, payee = NULL, note = 'its data were erased',
    erased_at = coalesce(%(now)s, now())
FROM chosen c WHERE r.tx_id = c.tx_id

-- :name set_aside_approvals
-- Requests that wait, about these; or about many of which nothing is left.
UPDATE approval r
SET state = 'stale', note = 'what it is about was erased', decided_at = coalesce(%(now)s, now())
WHERE r.state = 'pending'
  AND (r.subject = ANY(%(subject)s)
       OR (r.id = ANY(%(bulk)s)
           AND NOT EXISTS (SELECT 1 FROM approval_item i JOIN tx_summary t ON t.tx_id = i.tx_id
                           WHERE i.approval_id = r.id AND t.erased_at IS NULL)))
RETURNING r.id, r.action

-- :name approvals_over
-- What people were asked about transactions or batches and is over; what one person did alone, if
-- another has looked into it.
SELECT id FROM approval
WHERE subject = ANY(%(subject)s) AND state NOT IN ('pending', 'approved')
  AND (NOT break_glass OR closed_by IS NOT NULL)
ORDER BY id FOR UPDATE

-- :name erase_approvals
-- What was asked, what people said, and what was noted about that. Who agreed to what stays.
WITH decisions AS (
    UPDATE approval_decision SET note = '' WHERE approval_id = ANY(%(id)s)
), alerts AS (
    UPDATE alert SET summary = 'erased' WHERE subject = ANY(%(name)s)
), actions AS (
    UPDATE operator_action r SET reason = NULL, details = json_build_object(
        'erased', encode(sha256(convert_to(coalesce(r.details::text, ''), 'UTF8')), 'hex'),
        'erasedReason', encode(sha256(convert_to(coalesce(r.reason, ''), 'UTF8')), 'hex'))
    WHERE r.subject = ANY(%(name)s) AND coalesce(r.details ->> 'erased', '') = ''
)
UPDATE approval r
SET reason = 'erased', note = NULL,
    params = CASE WHEN action = 'step' OR action LIKE 'resolve.%%' THEN json_build_object(
                      'decision', params -> 'decision', 'output', NULL, 'erased', true)
                  ELSE params END
WHERE id = ANY(%(id)s) AND state NOT IN ('pending', 'approved')

-- :name batches_of
-- The batches of transactions.
SELECT service_id, batch_id FROM ledger_batch WHERE tx_id = ANY(%(tx_id)s)

-- :name batches_of_owner
-- Some final batches of an owner that belong to no transaction and are not erased; not those about
-- which something is being carried out, or was done by one person alone and not looked into.
SELECT service_id, batch_id FROM ledger_batch
WHERE owner = %(owner)s AND tx_id IS NULL AND final_at IS NOT NULL AND payload <> ''
  AND NOT EXISTS (SELECT 1 FROM approval a WHERE a.subject = service_id || '/' || batch_id
                    AND (a.state = 'approved' OR (a.break_glass AND a.closed_by IS NULL)))
ORDER BY service_id, seq LIMIT %(limit)s

-- :name lock_batches
-- Those of them that may still be erased, now that no person decides about them any more.
SELECT service_id, batch_id FROM ledger_batch
WHERE (service_id, batch_id) IN (SELECT * FROM unnest(%(service)s::text[], %(batch)s::text[]))
  AND final_at IS NOT NULL AND payload <> ''
  AND NOT EXISTS (SELECT 1 FROM approval a WHERE a.subject = service_id || '/' || batch_id
                    AND (a.state = 'approved' OR (a.break_glass AND a.closed_by IS NULL)))
ORDER BY service_id, seq FOR UPDATE

-- :name erase_batches
-- What batches said, and what was said about them. The fingerprint of the payload stays.
WITH chosen AS (
    SELECT * FROM unnest(%(service)s::text[], %(batch)s::text[]) AS v (service_id, batch_id)
), attempts AS (
    UPDATE batch_attempt r SET note = NULL FROM chosen c
    WHERE r.service_id = c.service_id AND r.batch_id = c.batch_id
), log AS (
    UPDATE batch_status r SET note = NULL FROM chosen c
    WHERE r.service_id = c.service_id AND r.batch_id = c.batch_id
), alerts AS (
    UPDATE alert r SET summary = 'erased' FROM chosen c
    WHERE r.subject = c.service_id || '/' || c.batch_id
), actions AS (
    UPDATE operator_action r SET reason = NULL, details = json_build_object(
        'erased', encode(sha256(convert_to(coalesce(r.details::text, ''), 'UTF8')), 'hex'),
        'erasedReason', encode(sha256(convert_to(coalesce(r.reason, ''), 'UTF8')), 'hex'))
    FROM chosen c WHERE r.subject = c.service_id || '/' || c.batch_id
      AND coalesce(r.details ->> 'erased', '') = ''
)
UPDATE ledger_batch r
SET payload = '', note = NULL, receipt = CASE WHEN r.receipt IS NOT NULL THEN json_build_object(
        'erased', encode(sha256(convert_to(r.receipt::text, 'UTF8')), 'hex')) END
FROM chosen c WHERE r.service_id = c.service_id AND r.batch_id = c.batch_id
  AND r.final_at IS NOT NULL AND r.payload <> ''

-- :name erase_answers
-- Answers to requests of an owner that were refused, wholly or in part: they may quote what was
-- sent. The same request is judged anew then; what was accepted is found by its external id.
DELETE FROM idempotency_key k USING (
    SELECT owner, key FROM idempotency_key
    WHERE owner = %(owner)s AND (status >= 400 OR status = 207)
    ORDER BY key LIMIT %(limit)s FOR UPDATE
) chosen
WHERE k.owner = chosen.owner AND k.key = chosen.key

-- :name lock_data_keys
-- Waits for those who accept with a data key of this owner at the moment.
SELECT id FROM data_key WHERE owner = %(owner)s ORDER BY id FOR UPDATE

-- :name erase_data_keys
-- The data keys of an owner with which nothing is sealed that is not erased. Copies in backups and
-- in files of other hosts cannot be opened from then on.
DELETE FROM data_key k
WHERE k.owner = %(owner)s AND NOT EXISTS (
    SELECT 1 FROM tx_summary t
    WHERE t.owner = %(owner)s AND t.erased_at IS NULL
      AND split_part(t.input ->> '$sealed', '.', 1) = k.id)
RETURNING k.id
