"""Questions that were put to the simulator, so that their answers can be had again."""
