"""The model and its data as arithmetic: tensors, blocks, owners, samples, optimizers. No sockets, no threads."""
