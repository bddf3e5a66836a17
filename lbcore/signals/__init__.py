"""From reports to numbers that decisions use: scores, averages, order, freshness."""
