"""lbcore.machines."""
