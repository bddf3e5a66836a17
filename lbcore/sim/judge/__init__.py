"""Evaluation of a run: its measures, its safety, and the best possible results."""
