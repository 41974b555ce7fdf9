"""The simulator's truth about speeds: how fast jobs train, by size, place and type of GPU."""
