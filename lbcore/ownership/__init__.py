"""Ownership of bundles: records, state machine tables, and their interpreter."""
