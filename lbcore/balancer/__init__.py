"""The balancer of one cluster: begin with `phases`, what it does with each batch."""
