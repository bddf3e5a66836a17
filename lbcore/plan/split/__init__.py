"""lbcore.plan.split."""
