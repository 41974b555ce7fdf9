"""Faults of jobs on this machine: whatever dies in whatever state, no job is lost or doubled, and all go on."""
