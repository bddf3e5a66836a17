"""lbcore.signals."""
