"""Benchmark of the local agent's control plane: its commands, its decisions over a long queue, and its own load."""
