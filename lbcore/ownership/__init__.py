"""lbcore.ownership."""
