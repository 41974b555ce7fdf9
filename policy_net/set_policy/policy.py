"""The `set` policy: a planner on beliefs that it learns online, tilted by a learned residual.

Whatever the residual says, the planner's gains decide what is admissible; and what the beliefs say is corrected by what
the cluster shows. So the policy is never worse off than its parts without being told.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from policy_net.domain import ClusterState, Decision, Progress, SpeedModel, Trigger
from policy_net.exchange.set_spec import SET, SetSpec
from policy_net.exchange.spec import Weights
from policy_net.exchange.statistics import SpeedStatistic
from policy_net.set_policy.features import job_inputs, uncertainty_of
from policy_net.set_policy.planner import plan
from policy_net.set_policy.residual import Residual
from policy_net.set_policy.steps import StepTables
from policy_net.throughput.gaussian_process import GaussianProcessBeliefs


class SetPolicy:
    """Allocates with planner, beliefs and residual; deterministic.

    Args:
        priors: what is believed of speeds at the start.
        speeds: plan on these in place of beliefs; for yardsticks only.
    """

    def __init__(
        self,
        spec: SetSpec,
        weights: Weights,
        priors: Sequence[SpeedStatistic] = (),
        *,
        speeds: SpeedModel | None = None,
        label: str = SET,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        self.spec = spec
        self.beliefs = GaussianProcessBeliefs(priors) if speeds is None else None
        self.inference_seconds: list[float] = []
        self._tables = StepTables(speeds if self.beliefs is None else self.beliefs)  # type: ignore[arg-type]  # one is
        self._residual = Residual(spec, weights)
        self._label = label
        self._clock = clock

    @property
    def name(self) -> str:
        """The name under which results are reported."""
        return self._label

    def decide(self, state: ClusterState, trigger: Trigger) -> Decision:
        """Allocate tasks to the jobs of `state`, from zero; the same at every trigger."""
        del trigger
        if self.beliefs is not None:
            self.beliefs.introduce(state.jobs)
        tables = [self._tables.of(job) for job in state.jobs]
        if self._residual.silent or not tables:
            return plan(state, tables)
        began = self._clock()
        uncertainties = [
            uncertainty_of(self.beliefs, job, table) for job, table in zip(state.jobs, tables, strict=True)
        ]
        tilts = self._residual.tilts(job_inputs(state, tables, uncertainties))
        self.inference_seconds.append(self._clock() - began)
        return plan(state, tables, tilts)

    def observe(self, progress: Sequence[Progress]) -> None:
        """Sharpen the beliefs."""
        if self.beliefs is not None:
            self.beliefs.observe(progress)
