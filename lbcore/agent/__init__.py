"""A broker's side of the protocol: the agent's Machine (`agent`), its lease, its reports."""
