"""The demonstration on Kubernetes, `make demo-kube`: jobs applied with kubectl, trained and resized by an agent."""
