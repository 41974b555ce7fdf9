"""A Kubernetes cluster as a backend: what it has free, which jobs may change size, and what would be better."""
