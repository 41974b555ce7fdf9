"""Heartbeats of agents: what one may say, and what is made of it besides the view of its cluster."""
