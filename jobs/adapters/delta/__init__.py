"""Delta tables without a JVM: their place, logs, rows, writers and upkeep."""
