"""Ownership on its way: what brokers answered, what is repaired, what a split leaves."""
