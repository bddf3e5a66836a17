"""An exhaustive search over the production Machines in a small world; see `search`."""
