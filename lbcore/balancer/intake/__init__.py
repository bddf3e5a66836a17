"""What a batch's arrivals tell: reports, clocks, topics, who lives, whom to hold back."""
