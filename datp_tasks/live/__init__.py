"""Hot state: Redis, changed only by the Lua scripts in `lua/`."""
