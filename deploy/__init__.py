"""How fedl2 is run: the local fleet, and later the cluster manifests."""
