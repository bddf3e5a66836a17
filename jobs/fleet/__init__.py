"""The simulated fleet: many brokers in one process, on the real Kafka.

Runs the agents' Machines of `lbcore`, and adds what machines do: how long a callback takes, who
dies.
"""
