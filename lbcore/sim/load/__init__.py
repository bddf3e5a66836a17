"""What topics, bundles and brokers carry: drawn, recorded, or folded from a trace."""
