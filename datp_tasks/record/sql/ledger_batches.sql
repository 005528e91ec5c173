-- Each transition compares before it sets.
--
-- The time is `coalesce(%(now)s, clock_timestamp())`, read when a row is looked at, which is right
-- for a check under a lock that was waited for; `(SELECT ...)` of it is read once, so that an index
-- can use it.

-- :name add_service
-- Make a service with its claim, or change its address; no row if it exists with another kind, or
-- is not as it was seen.
WITH service AS (
    INSERT INTO ledger_service (service_id, kind, url, secret, created_at)
    VALUES (%(service)s, %(kind)s, %(url)s, %(secret)s, coalesce(%(now)s, clock_timestamp()))
    ON CONFLICT (service_id) DO UPDATE SET url = excluded.url, secret = excluded.secret
    WHERE ledger_service.kind = excluded.kind
      AND (NOT %(compares)s
           OR (ledger_service.url = %(seen_url)s
               AND ledger_service.secret IS NOT DISTINCT FROM %(seen_secret)s))
    RETURNING service_id, kind
), claim AS (
    INSERT INTO service_claim (service_id) SELECT service_id FROM service
    ON CONFLICT (service_id) DO NOTHING
)
SELECT service_id FROM service

-- :name services
-- Services by name, or all that come after one.
SELECT service_id, kind, url, secret FROM ledger_service
WHERE (service_id = ANY(%(services)s) OR %(services)s IS NULL)
  AND service_id > coalesce(%(after)s, '')
ORDER BY service_id LIMIT %(limit)s

-- :name give_numbers
-- Give numbers to new batches of a service; the last of them. The row of the service stays locked
-- until the commit, so numbers are given in commit order.
UPDATE ledger_service SET last_seq = last_seq + %(count)s WHERE service_id = %(service)s
RETURNING last_seq

-- :name known
-- Which of these batches a service has already.
SELECT b.batch_id, b.seq, b.state, b.fingerprint FROM ledger_batch b
WHERE b.service_id = %(service)s AND b.batch_id = ANY(%(batches)s)

-- :name open_counts
-- How many batches these owners have in the line of a service, up to a limit. The service is
-- locked, so the number holds until the commit.
SELECT v.owner, (SELECT count(*) FROM (
           SELECT 1 FROM ledger_batch b
           WHERE b.service_id = %(service)s AND b.owner = v.owner AND b.final_at IS NULL
           LIMIT %(limit)s) AS open) AS batches
FROM unnest(%(owners)s::text[]) AS v (owner)

-- :name store
-- Store new batches under their numbers.
INSERT INTO ledger_batch (service_id, batch_id, seq, owner, fingerprint, payload, next_at, tx_id,
                          switch, created_at)
SELECT %(service)s, v.batch_id, v.seq, v.owner, v.fingerprint, v.payload,
       (SELECT coalesce(%(now)s, clock_timestamp())), v.tx_id, v.switch,
       (SELECT coalesce(%(now)s, clock_timestamp()))
FROM unnest(%(batch)s::text[], %(seq)s::bigint[], %(owner)s::text[], %(fingerprint)s::text[],
            %(payload)s::bytea[], %(tx_id)s::text[], %(switch)s::text[])
     AS v (batch_id, seq, owner, fingerprint, payload, tx_id, switch)

-- :name note_due
-- A service has something to submit now.
UPDATE service_claim SET due_at = least(due_at, coalesce(%(now)s, clock_timestamp()))
WHERE service_id = %(service)s

-- :name begin
-- Commit that attempts begin, before anything is sent. This is the fence:
-- the claim is locked while it is compared, so it cannot change hands before this commits; and what
-- is committed here is seen by the instance that takes the claim over.
WITH want AS (
    SELECT * FROM unnest(%(service)s::text[], %(batch)s::text[], %(epoch)s::bigint[])
             AS w (service_id, batch_id, epoch)
), held AS MATERIALIZED (
    SELECT c.service_id, c.epoch, w.batch_id
    FROM want w
    JOIN service_claim c ON c.service_id = w.service_id AND c.epoch = w.epoch
    JOIN ledger_instance i ON i.instance = c.claimant
    WHERE i.expiry > coalesce(%(now)s, clock_timestamp())
      AND i.slow_expiry > coalesce(%(now)s, clock_timestamp()) + make_interval(secs => %(budget)s)
    ORDER BY c.service_id
    FOR SHARE OF c
), begun AS (
    UPDATE ledger_batch b
    SET state = 'SUBMITTING', claim_epoch = held.epoch, attempts = b.attempts + 1,
        possible = b.possible + 1,
        next_at = coalesce(%(now)s, clock_timestamp()) + make_interval(secs => %(budget)s),
        grace_until = coalesce(%(now)s, clock_timestamp()) + make_interval(secs => %(grace)s),
        polls = 0, unknown_seen = 0
    FROM held
    WHERE b.service_id = held.service_id
      AND b.seq = (SELECT first.seq FROM ledger_batch first
                   WHERE first.service_id = held.service_id AND first.final_at IS NULL
                   ORDER BY first.seq LIMIT 1)
      AND (held.batch_id = '' OR held.batch_id = b.batch_id)
      AND b.state IN ('NEW', 'DELAYED') AND b.next_at <= coalesce(%(now)s, clock_timestamp())
    RETURNING b.service_id, b.batch_id, b.payload, b.claim_epoch, b.attempts, b.possible
), noted AS (
    INSERT INTO batch_attempt (service_id, batch_id, attempt, epoch, sender, begun_at)
    SELECT service_id, batch_id, attempts, claim_epoch, %(sender)s,
           coalesce(%(now)s, clock_timestamp())
    FROM begun
), alerted AS (
    INSERT INTO alert (kind, subject, summary, created_at)
    SELECT %(alert)s, b.service_id || '/' || b.batch_id,
           format('attempt %%s begins, and an earlier one may have arrived: this ledger would '
                  'execute the batch again', b.attempts),
           coalesce(%(now)s, clock_timestamp())
    FROM begun b JOIN ledger_service s ON s.service_id = b.service_id
    WHERE b.possible > 1 AND NOT s.kind = ANY(%(drops_duplicates)s)
    ON CONFLICT (kind, subject) WHERE cleared_at IS NULL DO NOTHING
)
SELECT begun.*, s.kind, s.url, s.secret
FROM begun JOIN ledger_service s ON s.service_id = begun.service_id

-- :name finish
-- Record how attempts ended and what that makes of their batches. Compare and set on the batch
-- itself. The attempt's own row is written whatever comes of that.
WITH v AS (
    SELECT * FROM unnest(%(service)s::text[], %(batch)s::text[], %(epoch)s::bigint[],
                         %(attempt)s::integer[], %(state)s::text[], %(verdict)s::text[],
                         %(http)s::integer[], %(note)s::text[], %(pause)s::float8[],
                         %(final)s::boolean[], %(alert)s::text[], %(subject)s::text[])
             AS v (service_id, batch_id, epoch, attempt, state, verdict, http, note, pause, final,
                   alert, subject)
), claim AS MATERIALIZED (
    SELECT c.service_id FROM service_claim c
    WHERE c.service_id IN (SELECT v.service_id FROM v WHERE v.final OR v.state = 'DELAYED')
    ORDER BY c.service_id FOR NO KEY UPDATE OF c
), noted AS (
    UPDATE batch_attempt a
    SET ended_at = coalesce(%(now)s, clock_timestamp()), verdict = v.verdict,
        http_status = v.http, note = v.note
    FROM v
    WHERE a.service_id = v.service_id AND a.batch_id = v.batch_id AND a.attempt = v.attempt
      AND a.epoch = v.epoch AND a.verdict IS NULL
), done AS (
    UPDATE ledger_batch b
    SET state = v.state,
        next_at = CASE WHEN v.final THEN 'infinity' ELSE
            coalesce(%(now)s, clock_timestamp()) + make_interval(secs => v.pause) END,
        possible = b.possible - (v.verdict = 'refused')::integer, note = v.note,
        final_at = CASE WHEN v.final THEN coalesce(%(now)s, clock_timestamp()) END
    FROM v LEFT JOIN claim ON claim.service_id = v.service_id
    WHERE b.service_id = v.service_id AND b.batch_id = v.batch_id AND b.state = 'SUBMITTING'
      AND b.claim_epoch = v.epoch AND b.attempts = v.attempt
    RETURNING b.service_id, b.batch_id, b.state, b.next_at, b.note, b.tx_id, b.switch, v.final,
              v.alert, v.subject
), alerted AS (
    INSERT INTO alert (kind, subject, summary, created_at)
    SELECT alert, subject, note, coalesce(%(now)s, clock_timestamp())
    FROM done WHERE alert IS NOT NULL
    ON CONFLICT (kind, subject) WHERE cleared_at IS NULL DO NOTHING
), cleared AS (
    UPDATE alert SET cleared_at = coalesce(%(now)s, clock_timestamp())
    WHERE kind = %(cleared)s AND cleared_at IS NULL
      AND subject IN (SELECT service_id FROM done WHERE state = 'PENDING')
), seen AS (
    INSERT INTO batch_status (service_id, batch_id, state, source, note, seen_at)
    SELECT service_id, batch_id, state, 'submitter', note, coalesce(%(now)s, clock_timestamp())
    FROM done
), due AS (
    UPDATE service_claim c
    SET due_at = least(c.due_at, CASE WHEN d.final THEN coalesce(%(now)s, clock_timestamp())
                                      ELSE d.next_at END)
    FROM done d WHERE c.service_id = d.service_id AND (d.final OR d.state = 'DELAYED')
)
SELECT service_id, batch_id, state, tx_id, switch, final FROM done

-- :name take_up
-- Take batches of which the ledger should be asked now. Put off before they are asked for: two
-- pollers share the work, and one that dies delays it.
WITH due AS MATERIALIZED (
    SELECT b.service_id, b.batch_id FROM ledger_batch b
    WHERE b.state IN ('INVALID', 'PENDING', 'UNKNOWN', 'VALID') AND b.next_at < 'infinity'
      AND b.next_at <= (SELECT coalesce(%(now)s, clock_timestamp()))
    ORDER BY b.next_at LIMIT %(limit)s
    FOR NO KEY UPDATE SKIP LOCKED
)
UPDATE ledger_batch b
SET polls = b.polls + 1, next_at = CASE
    WHEN b.state = 'INVALID'
         AND b.final_at + make_interval(secs => %(recheck)s) <= coalesce(%(now)s, clock_timestamp())
        THEN 'infinity'
    WHEN b.state = 'INVALID'
        THEN coalesce(%(now)s, clock_timestamp()) + make_interval(secs => %(slowest)s)
    WHEN b.state = 'UNKNOWN'
        THEN coalesce(%(now)s, clock_timestamp()) + make_interval(secs => %(first)s)
    ELSE coalesce(%(now)s, clock_timestamp())
         + make_interval(secs => least(%(slowest)s, %(first)s * 2 ^ least(b.polls, 20)))
    END
FROM due, ledger_service s
WHERE b.service_id = due.service_id AND b.batch_id = due.batch_id AND s.service_id = b.service_id
RETURNING b.service_id, b.batch_id, s.kind, s.url, s.secret, b.state, b.attempts, b.possible,
          b.resubmits, b.unknown_seen,
          b.grace_until <= coalesce(%(now)s, clock_timestamp()) AS grace_over,
          b.grace_until + make_interval(secs => %(swallow)s)
              <= coalesce(%(now)s, clock_timestamp()) AS swallow_over

-- :name record
-- Write down what answers of ledgers made of batches. COMMITTED is believed from any source and
-- absorbs everything; all else only if nothing changed since the question.
WITH v AS (
    SELECT * FROM unnest(%(service)s::text[], %(batch)s::text[], %(state)s::text[], %(was)s::text[],
                         %(attempts)s::integer[], %(unknown_was)s::integer[],
                         %(unknown_seen)s::integer[], %(resubmits)s::integer[],
                         %(receipt)s::text[], %(note)s::text[], %(final)s::boolean[],
                         %(recheck)s::boolean[], %(alert)s::text[])
             AS v (service_id, batch_id, state, was, attempts, unknown_was, unknown_seen,
                   resubmits, receipt, note, final, recheck, alert)
), claim AS MATERIALIZED (
    SELECT c.service_id FROM service_claim c
    WHERE c.service_id IN (SELECT v.service_id FROM v WHERE v.final OR v.state = 'DELAYED')
    ORDER BY c.service_id FOR NO KEY UPDATE OF c
), done AS (
    UPDATE ledger_batch b
    SET state = v.state, unknown_seen = v.unknown_seen, resubmits = v.resubmits,
        receipt = coalesce(v.receipt::json, b.receipt), note = v.note,
        final_at = CASE WHEN v.final THEN coalesce(%(now)s, clock_timestamp()) END,
        next_at = CASE
            WHEN v.recheck
                THEN coalesce(%(now)s, clock_timestamp()) + make_interval(secs => %(slowest)s)
            WHEN v.final OR v.state = 'PARKED' THEN 'infinity'
            WHEN v.state = 'DELAYED' THEN coalesce(%(now)s, clock_timestamp())
            ELSE b.next_at END
    FROM v LEFT JOIN claim ON claim.service_id = v.service_id
    WHERE b.service_id = v.service_id AND b.batch_id = v.batch_id AND b.final_at IS NULL
      AND (v.state = 'COMMITTED'
           OR (b.state = v.was AND b.attempts = v.attempts AND b.unknown_seen = v.unknown_was))
    RETURNING b.service_id, b.batch_id, b.state, v.was, b.note, b.tx_id, b.switch, v.final,
              v.alert
), alerted AS (
    INSERT INTO alert (kind, subject, summary, created_at)
    SELECT alert, service_id || '/' || batch_id, coalesce(note, state),
           coalesce(%(now)s, clock_timestamp())
    FROM done WHERE alert IS NOT NULL
    ON CONFLICT (kind, subject) WHERE cleared_at IS NULL DO NOTHING
), seen AS (
    INSERT INTO batch_status (service_id, batch_id, state, source, note, seen_at)
    SELECT service_id, batch_id, state, %(source)s, note, coalesce(%(now)s, clock_timestamp())
    FROM done WHERE state <> was
), due AS (
    UPDATE service_claim c SET due_at = coalesce(%(now)s, clock_timestamp())
    FROM done d WHERE c.service_id = d.service_id AND (d.final OR d.state = 'DELAYED')
)
SELECT service_id, batch_id, state, tx_id, switch, final FROM done

-- :name note_late_commit
-- The ledger has committed a batch that is final here in another state.
INSERT INTO batch_status (service_id, batch_id, state, source, note, seen_at)
VALUES (%(service)s, %(batch)s, 'COMMITTED', %(source)s, %(note)s,
        coalesce(%(now)s, clock_timestamp()))

-- :name find
-- A batch by its id, with an owner only if it is that owner's.
SELECT service_id, batch_id, seq, owner, state, attempts, resubmits, next_at, receipt, note, tx_id,
       created_at, final_at
FROM ledger_batch
WHERE service_id = %(service)s AND batch_id = %(batch)s AND coalesce(owner = %(owner)s, true)

-- :name payload
-- The bytes of a batch, with an owner only if it is that owner's.
SELECT payload FROM ledger_batch
WHERE service_id = %(service)s AND batch_id = %(batch)s AND coalesce(owner = %(owner)s, true)

-- :name list_batches
-- Batches by service and in order; NULL means any.
SELECT service_id, batch_id, seq, owner, state, attempts, resubmits, next_at, receipt, note, tx_id,
       created_at, final_at
FROM ledger_batch
WHERE coalesce(service_id = %(service)s, true) AND coalesce(state = %(state)s, true)
  AND coalesce(owner = %(owner)s, true) AND (%(all)s OR final_at IS NULL)
  AND starts_with(batch_id, %(prefix)s)
  AND (%(after)s::text IS NULL OR (service_id, seq) > (%(after)s, %(after_seq)s::bigint))
ORDER BY service_id, seq LIMIT %(limit)s

-- :name attempts
-- The attempts of a batch, in order.
SELECT attempt, epoch, sender, begun_at, ended_at, verdict, http_status, note FROM batch_attempt
WHERE service_id = %(service)s AND batch_id = %(batch)s ORDER BY attempt

-- :name sightings
-- The states that a batch came into, in order, and what saw them.
SELECT state, source, note, seen_at FROM batch_status
WHERE service_id = %(service)s AND batch_id = %(batch)s ORDER BY id
