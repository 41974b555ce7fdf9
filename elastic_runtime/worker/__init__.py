"""The worker: the user's script, and under it one of three modes that look the same to it."""
