"""Rollouts: a version comes to the clusters in stages, each ended by a verdict, and goes back by itself."""
