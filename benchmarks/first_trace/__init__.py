"""The worth of the fleet's priors to a cluster that joins."""
