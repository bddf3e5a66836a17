"""lbcore.plan."""
