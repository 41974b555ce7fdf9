"""Clusters that an agent can schedule: simulated first, Kubernetes later."""
