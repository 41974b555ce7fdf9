"""Scores of published versions on fixed replays, computed in a process of their own."""
