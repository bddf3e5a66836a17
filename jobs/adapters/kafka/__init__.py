"""Kafka: clients, topics and rights, and who writes and follows its records."""
