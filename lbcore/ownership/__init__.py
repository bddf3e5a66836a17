"""Who owns a bundle: records, the state machine's tables, and the code that interprets them."""
