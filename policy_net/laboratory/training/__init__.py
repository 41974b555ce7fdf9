"""Training before a policy meets a cluster: imitation, actor-critic in simulation, evolution."""

OFFLINE_LEARNING_RATE = 3e-4
"""Adam's, of the actor-critic in simulation; here, as a command's help says it and loads nothing that trains."""
