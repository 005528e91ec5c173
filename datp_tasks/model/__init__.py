"""The words of the system: plain data and pure functions, no input or output."""
