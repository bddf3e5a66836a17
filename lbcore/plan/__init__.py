"""A decision cycle: from a snapshot to a plan or the reason for none, by phases."""
