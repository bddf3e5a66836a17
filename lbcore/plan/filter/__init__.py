"""Filters: the brokers that may take a bundle, and the verdict on each other."""
