"""What agents and the learner exchange: specs, weights, policy files, messages."""
