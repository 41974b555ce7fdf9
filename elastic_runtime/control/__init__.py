"""The control plane as its users see it: plain messages, and clients for members and tools."""
