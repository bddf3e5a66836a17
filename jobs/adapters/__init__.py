"""What touches the outside world, one module a neighbour: Kafka, Spark, Delta, Java, processes.

Decides nothing about load. The processes in `jobs` put these together. Source: ours.
"""
