"""Shares of the machine that jobs hold: cores and GPUs, given to one job at a time and really kept."""
