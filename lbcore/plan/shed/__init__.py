"""Selection of bundles that leave an overloaded broker, one module per strategy."""
