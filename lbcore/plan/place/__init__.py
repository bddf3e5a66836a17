"""lbcore.plan.place."""
