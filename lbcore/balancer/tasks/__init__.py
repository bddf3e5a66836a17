"""What takes longer than one batch: drains, creations, deletions, commands that wait."""
