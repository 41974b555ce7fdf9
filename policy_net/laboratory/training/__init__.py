"""Training before a policy meets a cluster: imitation, actor-critic in simulation, evolution, a twin."""

from enum import StrEnum

OFFLINE_LEARNING_RATE = 3e-4
"""Adam's, of the actor-critic in simulation; here, as a command's help says it and loads nothing that trains."""


class SetMethod(StrEnum):
    """How a `set` policy is trained; here, as help that names it waits for no setting."""

    EVOLUTION = "evolution"
    TWIN = "twin"
