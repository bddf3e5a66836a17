"""lbcore.sim."""
