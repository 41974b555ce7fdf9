"""Upkeep of a state directory from outside the learner that serves it."""
