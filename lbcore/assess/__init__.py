"""Findings about a cluster from some minutes of observation, as values."""
