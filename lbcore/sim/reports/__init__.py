"""Reports on a run, and on one that a cluster has recorded."""
