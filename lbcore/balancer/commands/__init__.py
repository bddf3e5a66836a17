"""Handlers of commands, one module per subject; start with `commands`."""
