"""Where a cluster's jobs live: simulated first, Kubernetes later."""
