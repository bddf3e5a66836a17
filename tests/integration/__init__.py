"""Tests on the real Kafka, Spark, Delta and HTTP."""
