"""Training with parameter servers against plain PyTorch DistributedDataParallel, on one machine."""
