"""The keyed operators of the streaming job as pure Machines: events in, effects out."""
