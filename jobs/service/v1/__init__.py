"""Our own paths, below /v1: what Pulsar's interface has no words for."""
