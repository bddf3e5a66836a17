"""lbcore.config."""
