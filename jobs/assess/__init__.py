"""`ballast assess`: looks at a Pulsar cluster, renderings of a report."""
