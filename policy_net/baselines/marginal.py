"""The marginal-gain planner: tasks go where they add most utility, by a greedy over the concave hulls of all jobs.

Each job walks its type's hull (`hull.py`) from 0/0 upwards; the next step in the cluster is always the segment with
the highest slope × remaining work^−0.25, so short jobs come first but large ones keep a share. With beliefs that it
learns online (`gaussian_process.py`) this is `marginal`, a scheduler that needs no training; given the simulator's
speeds it is `oracle`, the yardstick.
Source: our own, on the concave-utility view of sharing in Optimus (EuroSys 2018 §4) and DL2 §6.1's comparisons.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence

from policy_net.baselines.decision_capacity import DecisionCapacity
from policy_net.baselines.hull import HullCache, urgency
from policy_net.domain import ClusterState, Decision, PolicyContext, Progress, SpeedModel, Trigger
from policy_net.policy import true_speeds_for
from policy_net.throughput.beliefs import Beliefs
from policy_net.throughput.gaussian_process import GaussianProcessBeliefs
from policy_net.throughput.probing import choose_probes


class MarginalPolicy:
    """Greedy hull planner over any speed model; feeds the progress it is shown to `beliefs`, if it has any."""

    def __init__(self, name: str, speeds: SpeedModel, beliefs: Beliefs | None = None) -> None:
        self.name = name
        self.speeds = speeds
        self._hulls = HullCache(speeds)
        self.beliefs = beliefs

    def decide(self, state: ClusterState, trigger: Trigger) -> Decision:  # noqa: ARG002  (the same at every trigger)
        """Walk the hull segments of all jobs by falling score (ties by arrival) until nothing more fits."""
        if self.beliefs is not None:
            self.beliefs.introduce(state.jobs)
        hulls = [self._hulls.of(job) for job in state.jobs]
        urgencies = [urgency(job) for job in state.jobs]
        free_capacity = DecisionCapacity(state)
        probing = self._probe(state, free_capacity)
        queue = [
            (-hull.segments[0].slope * urgency, index, 0)
            for index, (hull, urgency) in enumerate(zip(hulls, urgencies, strict=True))
            if hull.segments and index not in probing
        ]
        heapq.heapify(queue)
        while queue:
            _, index, step = heapq.heappop(queue)
            hull = hulls[index]
            if free_capacity.change(index, hull.segments[step].end):
                if step + 1 < len(hull.segments):
                    heapq.heappush(queue, (-hull.segments[step + 1].slope * urgencies[index], index, step + 1))
                continue
            # The step is too large for what is left: settle for the fastest split that fits, and close the job.
            free_capacity.settle(index, hull.splits)
        return free_capacity.decision()

    def _probe(self, state: ClusterState, free_capacity: DecisionCapacity) -> set[int]:
        """Give the jobs from which the beliefs have most to learn what there is to try; returns their indices."""
        probes = {} if self.beliefs is None else choose_probes(state, self.beliefs)
        return {index for index, probe in probes.items() if free_capacity.change(index, probe)}

    def observe(self, progress: Sequence[Progress]) -> None:
        """Sharpen the beliefs, if this policy plans on beliefs."""
        if self.beliefs is not None:
            self.beliefs.observe(progress)


def build_marginal(context: PolicyContext) -> MarginalPolicy:  # noqa: ARG001  (plans on its own beliefs, no truth)
    """Build the policy registered as `marginal`."""
    beliefs = GaussianProcessBeliefs()
    return MarginalPolicy("marginal", beliefs, beliefs)


def build_oracle(context: PolicyContext) -> MarginalPolicy:
    """Build the policy registered as `oracle`. Raises BadInput without true speeds."""
    return MarginalPolicy("oracle", true_speeds_for("oracle", context))
