"""Prometheus metrics of the processes: names, counts and the metrics page."""
