"""Processes of this machine: child processes, Java, jars, logs, settings, clocks."""
