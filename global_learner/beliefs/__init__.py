"""What clusters have told of speeds: checked, kept, and merged into the versions' priors."""
