"""What everything else speaks of: names, bundles, hashes, the tables' columns."""
