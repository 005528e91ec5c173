"""For people: why, resolve, redo, bulk, audit."""
