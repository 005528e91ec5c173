"""The beat: one module per job, each with `run_once`, bounded, and harmless twice at once."""
