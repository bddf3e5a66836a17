"""Parts of `ballast run-local`: processes, their logs, live view and summary."""
