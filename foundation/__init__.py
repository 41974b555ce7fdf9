"""Shared mechanics below all packages: files, locks, waiting, text, signals, log lines, and how programs end."""
