"""Validation of settings with each other and with the strategies."""
