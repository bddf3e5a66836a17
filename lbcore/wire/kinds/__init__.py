"""The kinds of commands, one file a subject; each has its `CommandSpec`."""
