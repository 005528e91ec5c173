-- :name head
-- Which version of a mapping is in use.
SELECT name, version_in_use, updated_at FROM mapping WHERE name = %(name)s

-- :name list_mappings
-- Every mapping by name, and how many versions and drafts it has.
SELECT m.name, m.version_in_use, m.updated_at, count(v.version) AS versions,
       count(*) FILTER (WHERE v.state = 'draft') AS drafts
FROM mapping m LEFT JOIN mapping_version v ON v.name = m.name
GROUP BY m.name ORDER BY m.name

-- :name versions
-- The versions of a mapping that begin like this, the newest first.
SELECT name, version, content_hash, definition, state, comment, created_at, committed_at
FROM mapping_version WHERE name = %(name)s AND starts_with(version, %(prefix)s)
ORDER BY created_at DESC, version

-- :name in_use
-- What the mappings in use say.
SELECT v.name, v.version, v.content_hash, v.definition
FROM mapping m JOIN mapping_version v ON v.name = m.name AND v.version = m.version_in_use
WHERE m.name = ANY(%(names)s)

-- :name add_mapping
-- Make a mapping that has no version in use, unless it exists.
INSERT INTO mapping (name) VALUES (%(name)s) ON CONFLICT DO NOTHING

-- :name add_version
-- Add a version as a draft; no row if it exists. One that is added again is the latest.
INSERT INTO mapping_version (name, version, content_hash, definition, state)
VALUES (%(name)s, %(version)s, %(content_hash)s, %(definition)s, 'draft')
ON CONFLICT (name, version) DO UPDATE SET created_at = now() WHERE mapping_version.state = 'draft'
RETURNING xmax = 0 AS is_new

-- :name commit_version
-- Mark a draft as committed; no row changes if it was no draft any more.
UPDATE mapping_version SET state = 'committed', comment = %(comment)s, committed_at = now()
WHERE name = %(name)s AND version = %(version)s AND state = 'draft'

-- :name use_version
-- Pipelines that are applied from now on get this version.
UPDATE mapping SET version_in_use = %(version)s, updated_at = now() WHERE name = %(name)s
