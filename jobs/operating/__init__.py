"""Shared code of the operators' verbs.

Words of a command line, sending commands, and finding a running stack.
"""
