"""Small values that many tests begin with."""
