"""Intake of a batch: reports, clocks, topics, broker liveness and the brake."""
