"""A local run whose processes are killed at random while it is asked, ordered about and judged."""
