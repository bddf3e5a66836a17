"""lbcore.plan.shed."""
