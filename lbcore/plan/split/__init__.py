"""Which bundles are divided, and at which hashes."""
