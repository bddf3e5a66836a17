"""Placement of unowned bundles, with one module per strategy."""
