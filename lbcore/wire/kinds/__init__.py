"""The kinds of commands, one file a subject; `command_about` describes them."""
