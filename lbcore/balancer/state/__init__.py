"""What the balancer remembers of a cluster, and one batch of it in the making (`work`)."""
