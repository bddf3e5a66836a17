"""Pulsar's own admin paths, so that its tools and clients work unchanged."""
