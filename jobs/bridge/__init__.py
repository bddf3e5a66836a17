"""The Pulsar bridge: observes, mirrors and, when asked, moves a real cluster.

`lbcore.bridge` does. Collector, mirror, actuator and guard are threads of one process without
Spark; `jobs.verbs.bridge` starts it.
"""
