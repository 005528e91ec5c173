-- :name anything
-- Whatever has this id. External ids are unique for an owner only; the owners are taken from their
-- index one after the other.
WITH RECURSIVE owners AS (
    (SELECT owner FROM tx_summary ORDER BY owner LIMIT 1)
    UNION ALL
    SELECT (SELECT s.owner FROM tx_summary s WHERE s.owner > o.owner ORDER BY s.owner LIMIT 1)
    FROM owners o WHERE o.owner IS NOT NULL
)
(SELECT 'transaction' AS kind, tx_id AS id, pipeline || ' of ' || owner AS about
 FROM tx_summary WHERE tx_id = %(text)s)
UNION ALL
(SELECT 'transaction', found.tx_id, 'external id of ' || o.owner || ', ' || found.pipeline
 FROM owners o CROSS JOIN LATERAL (
     SELECT s.tx_id, s.pipeline FROM tx_summary s
     WHERE s.owner = o.owner AND s.external_id = %(text)s
 ) found LIMIT %(limit)s)
UNION ALL
(SELECT 'batch', found.service_id || '/' || found.batch_id,
        'batch of ' || found.owner || ', ' || found.state
 FROM ledger_service s CROSS JOIN LATERAL (
     SELECT b.service_id, b.batch_id, b.owner, b.state FROM ledger_batch b
     WHERE b.service_id = s.service_id AND b.batch_id = %(text)s
 ) found LIMIT %(limit)s)
UNION ALL
(SELECT 'webhook', id, state || ', of transaction ' || tx_id
 FROM webhook_delivery WHERE id = %(text)s)
UNION ALL
(SELECT 'pipeline', name, coalesce('version ' || version_in_use, 'no version in use')
 FROM pipeline WHERE name = %(text)s)
UNION ALL
(SELECT 'approval', id::text, action || ' of ' || subject FROM approval WHERE id = %(number)s)
UNION ALL
(SELECT 'endpoint', id, 'endpoint of ' || owner FROM webhook_endpoint WHERE id = %(text)s)
UNION ALL
(SELECT 'mapping', name, coalesce('version ' || version_in_use, 'no version in use')
 FROM mapping WHERE name = %(text)s)
UNION ALL
(SELECT 'service', service_id, kind || ' ledger' FROM ledger_service WHERE service_id = %(text)s)
UNION ALL
(SELECT 'group', name, 'group of workers' FROM node_group WHERE name = %(text)s)
UNION ALL
(SELECT 'key', id, 'API key of ' || owner FROM api_key WHERE id = %(text)s)
