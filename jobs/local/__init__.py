"""Parts of `ballast run-local`: processes, their logs, live view and summary.

Decides nothing about load. `jobs.run_local` puts it together.
"""
