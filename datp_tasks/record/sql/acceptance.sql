-- :name hold_keys
-- The data keys of sealed inputs, which are not deleted until the commit.
SELECT id FROM data_key WHERE id = ANY(%(ids)s) ORDER BY id FOR KEY SHARE

-- :name accept
-- Accept requests: their summary rows and the first row of their history. In the order of their
-- external ids: two batches that share some could wait for each other else.
WITH accepted AS (
    INSERT INTO tx_summary (tx_id, owner, external_id, fingerprint, pipeline, version, status,
                            input, metadata, created_at, expires_at, webhook,
                            progress_reports, cancel_webhook_on_poll, trace, submitted_by, origin,
                            webhook_style, payee)
    SELECT v.tx_id, v.owner, v.external_id, v.fingerprint, v.pipeline, v.version, 'queued',
           v.input::json, v.metadata::json, coalesce(%(now)s, now()), v.expires_at, v.webhook,
           v.progress_reports, v.cancel_webhook_on_poll, v.trace, v.submitted_by, v.origin,
           v.webhook_style, v.payee::json
    FROM unnest(%(tx_id)s::text[], %(owner)s::text[], %(external_id)s::text[],
                %(fingerprint)s::text[], %(pipeline)s::text[], %(version)s::text[],
                %(input)s::text[], %(metadata)s::text[], %(expires_at)s::timestamptz[],
                %(webhook)s::text[], %(progress_reports)s::boolean[],
                %(cancel_webhook_on_poll)s::boolean[], %(trace)s::text[],
                %(submitted_by)s::text[], %(origin)s::text[], %(webhook_style)s::text[],
                %(payee)s::text[])
         WITH ORDINALITY
         AS v (tx_id, owner, external_id, fingerprint, pipeline, version, input, metadata,
               expires_at, webhook, progress_reports, cancel_webhook_on_poll, trace, submitted_by,
               origin, webhook_style, payee, place)
    ORDER BY v.owner, v.external_id, v.place
    ON CONFLICT (owner, external_id) WHERE external_id IS NOT NULL DO NOTHING
    RETURNING tx_id, created_at, expires_at, owner
), logged AS (
    INSERT INTO tx_state_change (tx_id, status, created_at, expires_at, owner)
    SELECT tx_id, 'queued', created_at, expires_at, owner FROM accepted
)
SELECT tx_id FROM accepted

-- :name existing
-- The transactions that have these external ids.
SELECT s.owner, s.external_id, s.tx_id, s.status, s.fingerprint
FROM tx_summary s
JOIN unnest(%(owner)s::text[], %(external_id)s::text[]) AS v (owner, external_id)
  ON s.owner = v.owner AND s.external_id = v.external_id
