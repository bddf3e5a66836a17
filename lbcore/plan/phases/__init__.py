"""The phases of a plan, one file each, in the order of `planner.PHASES`."""
