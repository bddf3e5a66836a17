"""Virtual time: a whole cluster on the production Machines; begin with `engine`."""
