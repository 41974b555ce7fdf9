"""Deployments of fedl2: the local fleet, and later the cluster manifests."""
