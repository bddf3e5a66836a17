"""Load of topics, bundles and brokers: generated, recorded, or from a trace."""
