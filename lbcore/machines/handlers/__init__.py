"""What carries commands out, one file a subject."""
