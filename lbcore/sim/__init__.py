"""A load model and a judge: clusters in virtual time, the same Machines, no I/O."""
