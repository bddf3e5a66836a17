"""tests.conformance."""
