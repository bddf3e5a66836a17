"""The simulated fleet: many brokers in one process, on the real Kafka.

Carries out what the agents' Machines of `lbcore` want; decides only what a real machine park would:
how long a callback takes, who dies.
"""
