"""Rules once more, slow and plain."""
