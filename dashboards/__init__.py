"""Grafana dashboards and Prometheus alert rules, and the code that makes them."""
