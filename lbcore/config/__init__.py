"""Every setting, declared once: default, unit, range, reason and the Pulsar key it mirrors."""
