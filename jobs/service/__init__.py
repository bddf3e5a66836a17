"""The lookup service: owners of topics, Pulsar's admin paths, and the console."""
