"""The work: step types, and the engine that runs them."""
