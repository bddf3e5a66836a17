"""Tasks of more than one batch: drains, creations, deletions, waiting commands."""
