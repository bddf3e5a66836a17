"""The admin service under test, and Pulsar's answers that it is held against."""
