"""Messages as bytes: one parser with named faults, one writer, one set of rules."""
