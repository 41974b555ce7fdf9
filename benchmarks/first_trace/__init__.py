"""What the fleet's priors are worth to a cluster that joins."""
