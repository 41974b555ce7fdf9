"""Clusters that an agent can schedule: simulated ones, this machine, Kubernetes."""
