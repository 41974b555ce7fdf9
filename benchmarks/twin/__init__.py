"""Benchmark of the compiled twin beside the reference."""
