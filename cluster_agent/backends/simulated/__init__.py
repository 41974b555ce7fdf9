"""The simulated cluster: a workload that runs in the agent's own process."""
