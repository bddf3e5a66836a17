"""The load balancer itself, pure: decisions are values computed from values.

Imports the standard library, numpy, mmh3 and re2 only; no clock, no randomness (but seeded, in
`sim`), no environment, files or logging. `jobs` fetches the values and carries the decisions out.
"""
