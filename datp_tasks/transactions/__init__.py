"""Moving one transaction wherever it is: restore it, stop it, repeat its signals."""
