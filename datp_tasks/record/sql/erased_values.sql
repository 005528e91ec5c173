-- :name values_gone
-- Texts of search attributes that no transaction of their owner has but those that are erased now:
-- each is looked for once, however many of them have it.
SELECT a.owner, a.name, substr(a.value, 2) AS value
FROM (SELECT DISTINCT owner, name, value FROM tx_attribute
      WHERE tx_id = ANY(%(tx_id)s) AND value LIKE 's_%%') AS a
WHERE NOT EXISTS (SELECT 1 FROM tx_attribute o
                  WHERE o.owner = a.owner AND o.name = a.name AND o.value = a.value
                    AND o.tx_id <> ALL(%(tx_id)s))

-- :name named_for_all
-- Conditions of filters without an owner, in the audit and in requests: they are about all owners.
SELECT DISTINCT f.condition, f.value
FROM (SELECT coalesce(details -> 'kept', details) -> 'where' AS filter FROM operator_action
      WHERE action IN ('bulk-cancel', 'bulk-wake', 'bulk-retry')
      UNION ALL
      SELECT params -> 'where' FROM approval WHERE starts_with(action, 'bulk.')) AS r
CROSS JOIN LATERAL json_each_text(r.filter -> 'attributes') AS f (condition, value)
WHERE r.filter ->> 'owner' IS NULL

-- :name values_of_none
-- Which of these texts no transaction has but those that are erased now. The owners are read off
-- the index, one by one.
WITH RECURSIVE owners AS (
    (SELECT owner FROM tx_attribute ORDER BY owner LIMIT 1)
    UNION ALL
    SELECT (SELECT n.owner FROM tx_attribute n WHERE n.owner > o.owner ORDER BY n.owner LIMIT 1)
    FROM owners o WHERE o.owner IS NOT NULL
)
SELECT v.name, v.value FROM unnest(%(name)s::text[], %(value)s::text[]) AS v (name, value)
WHERE NOT EXISTS (SELECT 1 FROM owners w
                  JOIN tx_attribute e ON e.owner = w.owner AND e.name = v.name
                   AND e.value = 's' || v.value AND NOT e.tx_id = ANY(%(tx_id)s))

-- :part chosen_by_value
-- Filters that name one of these values. One without an owner is about all of them.
CROSS JOIN LATERAL json_each_text(w.filter -> 'attributes') AS f (condition, value)
JOIN unnest(%(owner)s::text[], %(name)s::text[], %(value)s::text[], %(is_last)s::bool[])
     AS v (owner, name, value, is_last)
  ON v.name = split_part(f.condition, '[', 1)
 AND coalesce(v.owner = w.filter ->> 'owner', v.is_last)
 AND (left(f.value, %(chars)s) = v.value
      OR (f.condition LIKE '%%[prefix]' AND length(f.value) >= %(prefix)s
          AND starts_with(v.value, left(f.value, %(chars)s))))

-- :name bulk_actions
-- Rows of the audit about many transactions that were chosen by one of these values.
SELECT DISTINCT r.id FROM operator_action r
CROSS JOIN LATERAL (SELECT coalesce(r.details -> 'kept', r.details) -> 'where') w (filter)
-- :use chosen_by_value
WHERE r.action IN ('bulk-cancel', 'bulk-wake', 'bulk-retry')

-- :name bulks_of
-- Bulk transfers that were accepted with some of these, and of whose transfers all are erased. A
-- bulk and its transfers have one moment of acceptance, and only a bulk is bound by it.
SELECT DISTINCT b.tx_id
FROM tx_summary t
JOIN tx_summary b ON b.owner = t.owner AND b.created_at = t.created_at AND b.tx_id <> t.tx_id
 AND b.no_return_at = b.created_at
WHERE t.tx_id = ANY(%(tx_id)s)
  AND NOT EXISTS (SELECT 1 FROM tx_summary o
                  WHERE o.owner = b.owner AND o.created_at = b.created_at AND o.tx_id <> b.tx_id
                    AND o.erased_at IS NULL)

-- :name actions_of_bulks
-- Rows of the audit about the transfers of a bulk, if the bulk was erased or each of the transfers.
SELECT r.id
FROM (SELECT id, subject, action, coalesce(details -> 'kept', details) AS details
      FROM operator_action WHERE action IN ('bulk-cancel', 'bulk-transfer.cancel')) AS r
WHERE r.details -> 'where' ->> 'bulkTransfer' = ANY(%(bulk)s)
   OR (r.action = 'bulk-transfer.cancel' AND r.subject = ANY(%(bulk)s))
   OR (EXISTS (SELECT 1 FROM json_array_elements_text(r.details -> 'txIds') e (tx_id)
               WHERE e.tx_id = ANY(%(tx_id)s))
       AND NOT EXISTS (SELECT 1 FROM json_array_elements_text(r.details -> 'txIds') e (tx_id)
                       JOIN tx_summary t ON t.tx_id = e.tx_id AND t.erased_at IS NULL))

-- :name actions_of_approvals
-- What was noted about requests.
SELECT id FROM operator_action WHERE subject = ANY(%(name)s)

-- :name actions_under
-- Rows of the audit about many that were done under these requests.
SELECT id FROM operator_action
WHERE action IN ('bulk-cancel', 'bulk-wake', 'bulk-retry')
  AND coalesce(details -> 'kept', details) ->> 'approval' = ANY(%(approval)s)

-- :name bulk_approvals
-- Requests about many transactions that were chosen by one of these values.
SELECT DISTINCT r.id FROM approval r
CROSS JOIN LATERAL (SELECT r.params -> 'where') w (filter)
-- :use chosen_by_value
WHERE starts_with(r.action, 'bulk.')

-- :name approvals_of_many
-- Requests about the transfers of a bulk that was erased, or about many of which none is left.
SELECT id FROM approval
WHERE starts_with(action, 'bulk.') AND params -> 'where' ->> 'bulkTransfer' = ANY(%(bulk)s)
UNION
SELECT r.approval_id
FROM (SELECT DISTINCT approval_id FROM approval_item WHERE tx_id = ANY(%(tx_id)s)) AS r
WHERE NOT EXISTS (SELECT 1 FROM approval_item o JOIN tx_summary t ON t.tx_id = o.tx_id
                  WHERE o.approval_id = r.approval_id AND t.erased_at IS NULL)

-- :name actions
-- Rows of the audit of which something is left.
SELECT id, reason, details::text AS details FROM operator_action
WHERE id = ANY(%(id)s)
  AND (coalesce(details ->> 'erased', '') = '' OR details -> 'kept' IS NOT NULL)
ORDER BY id FOR UPDATE

-- :name write_actions
-- What is left of rows of the audit.
UPDATE operator_action r SET reason = v.reason, details = v.details::json
FROM unnest(%(id)s::bigint[], %(reason)s::text[], %(details)s::text[]) AS v (id, reason, details)
WHERE r.id = v.id

-- :name approvals
-- Requests that are over, and all that people said about them.
SELECT a.id, a.params::text AS params, a.break_glass,
       concat_ws(' ', a.reason, a.note,
                 (SELECT string_agg(d.note, ' ') FROM approval_decision d
                  WHERE d.approval_id = a.id)) AS said
FROM approval a
WHERE a.id = ANY(%(id)s) AND a.state NOT IN ('pending', 'approved') ORDER BY a.id FOR UPDATE

-- :name write_approvals
-- What is left of requests that are over.
WITH v AS (
    SELECT * FROM unnest(%(id)s::bigint[], %(params)s::text[], %(goes)s::bool[])
                  AS v (id, params, goes)
), decisions AS (
    UPDATE approval_decision d SET note = '' FROM v WHERE d.approval_id = v.id AND v.goes
)
UPDATE approval r
SET params = v.params::json, reason = CASE WHEN v.goes THEN 'erased' ELSE r.reason END,
    note = CASE WHEN v.goes THEN NULL ELSE r.note END
FROM v WHERE r.id = v.id AND r.state NOT IN ('pending', 'approved')

-- :name views
-- Filters of people, as they are in the URL.
SELECT person, name, query FROM saved_view

-- :name drop_views
-- Views whose filters name what is erased.
DELETE FROM saved_view s
USING unnest(%(person)s::text[], %(name)s::text[]) AS v (person, name)
WHERE s.person = v.person AND s.name = v.name

-- :name rename_views
-- Views whose names say what is erased.
UPDATE saved_view s SET name = v.new
FROM unnest(%(person)s::text[], %(name)s::text[], %(new)s::text[]) AS v (person, name, new)
WHERE s.person = v.person AND s.name = v.name
