-- :name set
-- Search attributes, in the commit that accepts or ends their transactions.
INSERT INTO tx_attribute (tx_id, owner, name, value)
SELECT s.tx_id, s.owner, v.name, v.value
FROM unnest(%(tx_id)s::text[], %(name)s::text[], %(value)s::text[]) AS v (tx_id, name, value)
JOIN tx_summary s ON s.tx_id = v.tx_id
ON CONFLICT (tx_id, name) DO UPDATE SET value = excluded.value
