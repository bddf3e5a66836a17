"""jobs.adapters."""
