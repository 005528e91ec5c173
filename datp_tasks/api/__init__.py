"""The HTTP API: `datp api` runs it, `docs/api.md` explains it, `/openapi.json` describes it."""
