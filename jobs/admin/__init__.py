"""The admin service's HTTP interface, beside the lookups and in the same process."""
