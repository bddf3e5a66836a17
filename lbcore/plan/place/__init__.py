"""Where an unowned bundle goes: one module a strategy."""
