"""Aggregation of the updates of many clusters into one head: each at once, in cohorts, or in rounds."""
