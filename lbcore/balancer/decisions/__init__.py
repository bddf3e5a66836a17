"""Decisions of the balancer: their timing, their snapshot and their outcome."""
