"""A folder for PYTHONPATH: every Python process that is started with it has faults planted."""
