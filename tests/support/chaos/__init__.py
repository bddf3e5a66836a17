"""Random clusters that random things happen to."""
