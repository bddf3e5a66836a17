"""A stateful fuzz of the whole control plane in virtual time; see `campaign`."""
