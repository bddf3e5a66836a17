"""What the processes say of themselves to Prometheus: names, counts, and the page they stand on."""
