"""The kinds of commands, one file a subject; `command_about` says what is declared of each."""
