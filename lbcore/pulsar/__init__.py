"""Pulsar's admin interface as values: its names, its JSON, its sentences."""
