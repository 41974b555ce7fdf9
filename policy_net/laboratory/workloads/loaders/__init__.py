"""Workloads that people have: one file a format, each from rows of that format to job records."""
