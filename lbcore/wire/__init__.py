"""Messages as bytes: one parser that names what is wrong, one writer, one set of rules."""
