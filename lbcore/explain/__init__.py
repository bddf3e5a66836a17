"""Explanations: rows of the tables as sentences that an operator understands, and their numbers."""
