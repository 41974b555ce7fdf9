"""Placement: which node gets which task; one file a strategy."""
