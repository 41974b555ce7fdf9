"""Demonstration of real jobs on this machine: six of them, one agent, one learner, and a page of what happened."""
