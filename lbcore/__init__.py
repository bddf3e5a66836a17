"""lbcore."""
