"""The `dl2` policy: actions, features and masks of a batch of jobs, the network, and the policy itself."""
