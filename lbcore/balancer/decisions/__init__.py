"""When the balancer decides, by what snapshot, and what became of what it decided."""
