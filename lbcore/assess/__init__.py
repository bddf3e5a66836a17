"""What is found out about a cluster by looking at it for some minutes, as values."""
