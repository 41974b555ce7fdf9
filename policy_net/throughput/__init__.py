"""Beliefs about speed, learned from observed progress; they never see the simulator's truth."""
