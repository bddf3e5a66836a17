"""The lookup service: who owns a topic, Pulsar's admin paths, our own, and the status page."""
