"""The lab: a real Pulsar cluster whose brokers are on hosts of their own, on one machine."""
