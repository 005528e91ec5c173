"""Examples of what can be built with datp_tasks."""
