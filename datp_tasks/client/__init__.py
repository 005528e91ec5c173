"""For programs: submit, read, wait, signal."""
