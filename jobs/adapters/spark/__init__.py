"""Spark: the streaming query, its operators, its sink, and where it goes on."""
