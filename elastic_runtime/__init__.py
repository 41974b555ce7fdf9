"""Elastic training for PyTorch; its rooms are built with the live resize."""
