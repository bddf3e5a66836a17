"""Planted in a job by its PYTHONPATH: a worker that comes too late."""
