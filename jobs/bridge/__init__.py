"""The Pulsar bridge: a real Pulsar cluster is seen, mirrored, and, when asked, moved.

`lbcore.bridge` does. Collector, mirror, actuator and guard are threads of one process without
Spark; `jobs.verbs.bridge` starts it.
"""
