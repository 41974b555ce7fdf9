"""Verdicts on a candidate: paired blocks of time within clusters, tests that hold at any time, one liar endured."""
