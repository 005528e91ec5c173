"""PostgreSQL, all of it: what was accepted, what ended, what must survive."""
