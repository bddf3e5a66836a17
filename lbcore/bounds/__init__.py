"""Bounds that no balancer can beat, whatever it knows and however it moves."""
