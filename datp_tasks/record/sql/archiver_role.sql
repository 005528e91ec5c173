-- :name guard
-- Show the fence of the archiver's role and hold its row until the commit; no row if a newer fence
-- is known.
INSERT INTO archive_role AS r (name, fence, node, granted_at)
VALUES ('archiver', %(fence)s, %(node)s, now())
ON CONFLICT (name) DO UPDATE SET fence = excluded.fence, node = excluded.node,
    granted_at = CASE WHEN r.fence = excluded.fence THEN r.granted_at ELSE now() END
WHERE r.fence <= excluded.fence
RETURNING now() AS now
