"""Places of a cluster's tasks: where pods lie, on GPUs of which type, and who is told."""
