"""What runs a service's callbacks for its agent, and lets none of them do harm."""
