"""Pulsar's own ways where the job has others: they answer the cases, and hold what it runs."""
