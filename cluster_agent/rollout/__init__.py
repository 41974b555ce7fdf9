"""A rollout's assignment in the agent: which version decides, what a block came to, what the other would have done."""
