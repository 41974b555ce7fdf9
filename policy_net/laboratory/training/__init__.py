"""Training before a policy meets a cluster: imitation, actor-critic in simulation, evolution."""
