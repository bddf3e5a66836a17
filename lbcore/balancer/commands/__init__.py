"""What carries commands out, one file a subject; begin with `commands`."""
