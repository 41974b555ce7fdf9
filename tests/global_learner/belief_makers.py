"""A fleet's beliefs without a learner around them."""

import time
from pathlib import Path

from learner_makers import fleet_beliefs, settings

from global_learner.beliefs.priors import priors_for
from global_learner.registry.registry import Registry
from global_learner.registry.registry_thread import RegistryThread
from global_learner.storage.state_dir import StateDir
from global_learner.telemetry import LearnerTelemetry
from global_learner.updates.head import Publication
from global_learner.updates.ledger import SinceVersion
from policy_net.exchange.policy_file import PolicyFile, parse_policy_file
from policy_net.exchange.spec import SetSpec
from policy_net.exchange.statistics import SpeedStatistic
from policy_net.set_policy.residual import initial_residual

SET_SPEC = SetSpec()


class World:
    """Reports and a registry whose v1 is a `set` policy, without a learner around them."""

    def __init__(self, folder: Path, v1_priors: tuple[SpeedStatistic, ...] = (), **beliefs) -> None:
        self.config = settings(folder, beliefs=beliefs)
        self.state = StateDir(self.config.state_dir)
        self.registry = Registry(self.state.path)
        self.weights = initial_residual(SET_SPEC, 0)
        self.registry.publish(PolicyFile(SET_SPEC, self.weights, {}, v1_priors), 0, 0.0, {}, 0.0, assign_all=False)
        self.telemetry = LearnerTelemetry()
        self.beliefs = fleet_beliefs(self.config, RegistryThread(self.registry), self.telemetry)
        self.store = self.beliefs._store

    def publish(self, step: int) -> PolicyFile:
        """The version that is due at a step, as it is read back."""
        due = Publication(step, self.weights, SinceVersion(), time.time())
        policy = due.policy_file(SET_SPEC, priors_for(SET_SPEC, self.beliefs.priors))
        card = self.registry.publish(policy, step, 0.0, {}, 0.0, assign_all=True)
        return parse_policy_file(self.registry.policy_bytes(card.version)[1], "version")
