"""Speed of the simulator, and what it keeps of jobs that have ended."""
