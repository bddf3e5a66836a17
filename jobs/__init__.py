"""The processes of Ballast and their command: thin shells around `lbcore`.

A module here fetches values, lets `lbcore` decide, and carries the decisions out. It has no branch
about load, health or placement.
"""

VERSION = "1.0.2"
