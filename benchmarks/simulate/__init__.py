"""How fast the simulator is, and what it keeps of jobs that have ended."""
