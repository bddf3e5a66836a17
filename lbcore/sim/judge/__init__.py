"""What a run was worth: its measures, its safety, and what would have been possible."""
