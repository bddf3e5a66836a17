"""The balancer of one cluster: begin with `PHASES` in `balancer`."""
