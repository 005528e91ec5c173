-- :name values_gone
-- Texts of search attributes that no transaction of their owner has but those that are erased now.
SELECT DISTINCT a.owner, a.name, substr(a.value, 2) AS value FROM tx_attribute a
WHERE a.tx_id = ANY(%(tx_id)s) AND a.value LIKE 's_%%'
  AND NOT EXISTS (SELECT 1 FROM tx_attribute o
                  WHERE o.owner = a.owner AND o.name = a.name AND o.value = a.value
                    AND o.tx_id <> ALL(%(tx_id)s))

-- :name bulk_actions
-- Rows of the audit about many transactions that were chosen by one of these values. A missing
-- owner or name stands for any.
SELECT DISTINCT r.id FROM operator_action r
CROSS JOIN LATERAL json_each_text(r.details -> 'where' -> 'attributes') AS f (condition, value)
JOIN unnest(%(owner)s::text[], %(name)s::text[], %(value)s::text[]) AS v (owner, name, value)
  ON (v.name IS NULL OR v.name = split_part(f.condition, '[', 1))
 AND coalesce(v.owner = r.details -> 'where' ->> 'owner', true)
 AND (left(f.value, %(chars)s) = v.value
      OR (f.condition LIKE '%%[prefix]' AND length(f.value) >= %(prefix)s
          AND starts_with(v.value, f.value)))
WHERE r.action LIKE 'bulk-%%'

-- :name bulk_approvals
-- Requests about many transactions that were chosen by one of these values.
SELECT DISTINCT r.id FROM approval r
CROSS JOIN LATERAL json_each_text(r.params -> 'where' -> 'attributes') AS f (condition, value)
JOIN unnest(%(owner)s::text[], %(name)s::text[], %(value)s::text[]) AS v (owner, name, value)
  ON (v.name IS NULL OR v.name = split_part(f.condition, '[', 1))
 AND coalesce(v.owner = r.params -> 'where' ->> 'owner', true)
 AND (left(f.value, %(chars)s) = v.value
      OR (f.condition LIKE '%%[prefix]' AND length(f.value) >= %(prefix)s
          AND starts_with(v.value, f.value)))
WHERE r.action LIKE 'bulk.%%'

-- :name erase_actions
-- What was noted, but for its SHA-256. Who did what and when stays.
UPDATE operator_action r SET reason = NULL, details = json_build_object(
    'erased', encode(sha256(convert_to(coalesce(r.details::text, ''), 'UTF8')), 'hex'),
    'erasedReason', encode(sha256(convert_to(coalesce(r.reason, ''), 'UTF8')), 'hex'))
WHERE r.id = ANY(%(id)s) AND coalesce(r.details ->> 'erased', '') = ''
RETURNING r.id

-- :name views
-- Filters of people, as they are in the URL.
SELECT person, name, query FROM saved_view

-- :name drop_views
-- Views whose filters name what is erased.
DELETE FROM saved_view s
USING unnest(%(person)s::text[], %(name)s::text[]) AS v (person, name)
WHERE s.person = v.person AND s.name = v.name

-- :name reasons
-- Reasons in which a text occurs.
SELECT id, reason AS said FROM operator_action
WHERE action <> 'erase' AND strpos(lower(reason), lower(%(text)s)) > 0

-- :name words
-- Requests for approval in whose reasons and notes a text occurs.
SELECT a.id, concat_ws(' ', a.reason, a.note, d.note) AS said
FROM approval a LEFT JOIN approval_decision d ON d.approval_id = a.id
WHERE strpos(lower(concat_ws(' ', a.reason, a.note, d.note)), lower(%(text)s)) > 0

-- :name summaries
-- Alerts in which a text occurs.
SELECT id, summary AS said FROM alert WHERE strpos(lower(summary), lower(%(text)s)) > 0

-- :name erase_alerts
-- What alerts said.
UPDATE alert SET summary = 'erased' WHERE id = ANY(%(id)s)

-- :name answers
-- Kept answers in which a text occurs, as JSON writes it.
SELECT owner, key, body AS said FROM idempotency_key
WHERE body IS NOT NULL AND strpos(lower(body), lower(%(text)s)) > 0

-- :name drop_answers
-- The same requests are judged anew; what was accepted is found by its external id.
DELETE FROM idempotency_key k
USING unnest(%(owner)s::text[], %(key)s::text[]) AS v (owner, key)
WHERE k.owner = v.owner AND k.key = v.key
