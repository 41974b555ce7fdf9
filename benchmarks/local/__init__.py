"""Real jobs on this machine under one policy after the other, and what the simulator foretold of each."""
