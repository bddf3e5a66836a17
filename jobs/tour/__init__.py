"""A scripted tour: things go wrong on purpose, and each tool says what it saw."""
