"""The parts of `ballast assess`: looks at a Pulsar cluster, and three renderings of a report."""
