-- :name head
-- Which version of a pipeline is in use, and whether it takes new transactions.
SELECT name, version_in_use, disabled, updated_at FROM pipeline WHERE name = %(name)s

-- :name lock_head
-- The same, and it stays so until the commit; new versions can still refer to the row meanwhile.
SELECT name, version_in_use, disabled, updated_at FROM pipeline WHERE name = %(name)s
FOR NO KEY UPDATE

-- :name heads
-- The same of every pipeline, by name.
SELECT name, version_in_use, disabled, updated_at FROM pipeline ORDER BY name

-- :name list_pipelines
-- Every pipeline by name, and how many versions and drafts it has.
SELECT p.name, p.version_in_use, p.disabled, p.updated_at, count(v.version) AS versions,
       count(*) FILTER (WHERE v.state = 'draft') AS drafts
FROM pipeline p LEFT JOIN pipeline_version v ON v.name = p.name
GROUP BY p.name ORDER BY p.name

-- :name versions
-- Every version of a pipeline, the newest first.
SELECT name, version, content_hash, definition, state, comment, created_at, committed_at
FROM pipeline_version WHERE name = %(name)s
ORDER BY created_at DESC, version

-- :name versions_like
-- The versions of a pipeline that begin like this; a few, which tell that it is not enough.
SELECT name, version, content_hash, definition, state, comment, created_at, committed_at
FROM pipeline_version WHERE name = %(name)s AND starts_with(version, %(prefix)s)
ORDER BY created_at DESC, version LIMIT 3

-- :name newest_version
-- The version of a pipeline that was applied last.
SELECT name, version, content_hash, definition, state, comment, created_at, committed_at
FROM pipeline_version WHERE name = %(name)s
ORDER BY created_at DESC, version LIMIT 1

-- :name latest_draft
-- The draft of a pipeline that was applied last; no row if all versions are committed.
SELECT name, version, content_hash, definition, state, comment, created_at, committed_at
FROM pipeline_version WHERE name = %(name)s AND state = 'draft'
ORDER BY created_at DESC, version LIMIT 1

-- :name add_pipeline
-- Make a pipeline that has no version in use, unless it exists.
INSERT INTO pipeline (name) VALUES (%(name)s) ON CONFLICT DO NOTHING

-- :name add_version
-- Add a version as a draft; no row if it exists.
INSERT INTO pipeline_version (name, version, content_hash, definition, state)
VALUES (%(name)s, %(version)s, %(content_hash)s, %(definition)s, 'draft')
ON CONFLICT DO NOTHING
RETURNING version

-- :name restore_content
-- Give a version that was altered its content back.
UPDATE pipeline_version SET content_hash = %(content_hash)s, definition = %(definition)s
WHERE name = %(name)s AND version = %(version)s

-- :name renew_draft
-- A draft that is applied again is the latest one.
UPDATE pipeline_version SET created_at = now() WHERE name = %(name)s AND version = %(version)s

-- :name commit_version
-- Mark a draft as committed; no row changes if it was no draft any more.
UPDATE pipeline_version SET state = 'committed', comment = %(comment)s, committed_at = now()
WHERE name = %(name)s AND version = %(version)s AND state = 'draft'

-- :name use_version
-- New transactions get this version from now on, also if the pipeline was disabled.
UPDATE pipeline SET version_in_use = %(version)s, disabled = false, updated_at = now()
WHERE name = %(name)s

-- :name disable
-- The pipeline takes no new transactions.
UPDATE pipeline SET disabled = true, updated_at = now() WHERE name = %(name)s

-- :name was_used
-- Whether a version was ever put into use, so that a transaction may have pinned it.
SELECT 1 FROM operator_action
WHERE subject = %(name)s AND action = 'pipeline.use' AND details ->> 'version' = %(version)s
LIMIT 1

-- :name delete_version
-- Remove a draft that is not in use.
DELETE FROM pipeline_version v USING pipeline p
WHERE v.name = %(name)s AND v.version = %(version)s AND v.state = 'draft'
  AND p.name = v.name AND p.version_in_use IS DISTINCT FROM v.version

-- :name delete_empty
-- A pipeline without a version is none.
DELETE FROM pipeline p WHERE p.name = %(name)s
  AND NOT EXISTS (SELECT 1 FROM pipeline_version v WHERE v.name = p.name)
