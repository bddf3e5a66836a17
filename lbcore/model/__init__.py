"""Shared terms of all packages: names, bundles, hashes, the tables' columns."""
