"""The only place that wires: the container and the worker process. No room imports it."""
