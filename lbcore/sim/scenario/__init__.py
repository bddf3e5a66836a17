"""Scenarios as text: a cluster, its load and faults, and the expected outcome."""
