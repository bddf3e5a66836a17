"""Tables as tests need them: written, damaged, aged, followed."""
