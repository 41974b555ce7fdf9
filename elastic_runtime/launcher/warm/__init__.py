"""Warm start of tasks: a process that has imported what they need, and forks one when it is asked to."""
