"""The parts that workers and parameter servers have in common: their environment, and what they send."""
