"""The compiled twin: a cluster under `set`, `dl2` or a heuristic, simulated in C as in the reference."""
