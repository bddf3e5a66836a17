"""lbcore.wire."""
