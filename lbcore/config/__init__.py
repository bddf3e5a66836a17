"""Settings: default, unit, range, reason and the Pulsar key of each."""
