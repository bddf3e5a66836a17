"""lbcore.route."""
