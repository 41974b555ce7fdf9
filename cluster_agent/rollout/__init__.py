"""A rollout's duty in the agent: whose turn it is, what a block came to, what the other version would have done."""
