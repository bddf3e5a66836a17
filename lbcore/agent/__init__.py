"""A broker's side of the protocol: the agent's Machine, its lease, its reports."""
