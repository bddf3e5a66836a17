"""The console's static files, without anything about the cluster."""
