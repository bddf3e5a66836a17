"""Processes that tests start, and what they talk to them with."""
