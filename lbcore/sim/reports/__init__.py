"""What is told of a run, and of one that a cluster has recorded."""
