"""Workloads: the jobs of a replay, generated from a seed or read from a recording."""
