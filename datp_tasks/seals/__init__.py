"""Sealing: the key ring, and AES-GCM under it. It only computes; the record keeps the results."""
