"""What the operators' verbs share: words of a command line, sending, finding a running stack."""
