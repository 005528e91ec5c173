-- :name add
-- Add a line to the audit of what operators did.
INSERT INTO operator_action (actor, key_id, request_id, address, action, subject, reason, details,
                             created_at)
VALUES (%(actor)s, %(key_id)s, %(request_id)s, %(address)s, %(action)s, %(subject)s, %(reason)s,
        %(details)s::json, coalesce(%(now)s, now()))
