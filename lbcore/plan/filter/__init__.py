"""Which brokers may take a bundle, and for each of the others why not."""
