"""Benchmark of an agent on a large Kubernetes cluster, which the test API server stands for."""
