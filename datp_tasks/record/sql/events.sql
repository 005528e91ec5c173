-- :name list_events
-- The events of a transaction after a number, in order: its reports, and last its end, which is the
-- summary itself.
SELECT sequence, kind, payload, created_at FROM tx_event
WHERE tx_id = %(tx_id)s AND sequence > %(after)s AND kind = 'progress'
UNION ALL
SELECT event_count + 1, 'final',
       json_build_object('status', status, 'output', output, 'note', note), completed_at
FROM tx_summary
WHERE tx_id = %(tx_id)s AND completed_at IS NOT NULL AND event_count + 1 > %(after)s
ORDER BY sequence LIMIT %(limit)s

-- :name last_news
-- When the record of a transaction last changed: its status, or its progress.
SELECT greatest((SELECT max(created_at) FROM tx_state_change WHERE tx_id = %(tx_id)s),
                (SELECT max(created_at) FROM tx_event WHERE tx_id = %(tx_id)s))

-- :name mark_notified
-- Note when the client first got to know of an event by a poll.
UPDATE tx_summary SET notified_at = coalesce(%(now)s, now())
WHERE tx_id = %(tx_id)s AND notified_at IS NULL

-- :name cancel_webhooks
-- End the deliveries of events that the client knows from a poll. An attempt that is under way is
-- not called back; it may still arrive.
UPDATE webhook_delivery
SET state = 'cancelled', finished_at = coalesce(%(now)s, now()), held = false
WHERE tx_id = %(tx_id)s AND sequence <= %(sequence)s AND state = 'pending'
