"""How well the verdicts of rollouts judge: versions made on purpose, on fleets of simulated clusters."""
