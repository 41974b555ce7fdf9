"""The fleet on one machine: what `make demo` runs."""
