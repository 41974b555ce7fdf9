"""Differential privacy of one cluster's updates: the bound, the noise, and what they come to."""
