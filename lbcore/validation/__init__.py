"""Validation of settings with each other and the strategies.

For settings of files, of commands, and of a broker.conf.
"""
