"""Adapters to the outside world, one module each.

Kafka, Spark, Delta, Java and processes.
"""
