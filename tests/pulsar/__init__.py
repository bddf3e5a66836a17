"""Tests on a real Pulsar cluster, and what starts one: its distribution, brokers and traffic."""
