"""Explanations: rows of the tables as sentences for operators, with their numbers."""
