"""What `ballast run-local` is made of: processes, their logs, the live view, the summary.

Decides nothing about load. `jobs.run_local` puts it together. Source: ours.
"""
