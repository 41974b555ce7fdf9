"""Policies on simulated single machines, each with a few jobs of types that nobody has seen."""
