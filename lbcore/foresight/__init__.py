"""Forecasts: dry runs of cycles and of commands, by the balancer's own code."""
