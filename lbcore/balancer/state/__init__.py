"""State of a cluster in the balancer, and of one batch in progress (`work`)."""
