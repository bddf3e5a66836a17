"""Which bundles leave an overloaded broker: one module a strategy."""
