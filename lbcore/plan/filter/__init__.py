"""lbcore.plan.filter."""
