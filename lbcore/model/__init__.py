"""lbcore.model."""
