"""Training before a policy meets a cluster: imitation, groups of decisions, actor-critic, evolution, a twin."""

from enum import StrEnum

OFFLINE_LEARNING_RATE = 3e-4
"""Adam's, of the actor-critic in simulation; here, as a command's help says it and loads nothing that trains."""


class Dl2Method(StrEnum):
    """How a `dl2` policy is trained: from groups of decisions, or the paper's way from what decisions brought."""

    GROUPS = "groups"
    ACTOR_CRITIC = "actor-critic"


class SetMethod(StrEnum):
    """How a `set` policy is trained; here, as help that names it waits for no setting."""

    EVOLUTION = "evolution"
    TWIN = "twin"
