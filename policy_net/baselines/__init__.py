"""Heuristic schedulers, one file each, as their papers define them."""
