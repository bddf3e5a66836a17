"""Splitting: the bundles to be divided, and the hashes at which they are cut."""
