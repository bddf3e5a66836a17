"""Scenarios as text: what a cluster is, carries and goes through, and what must come of it."""
