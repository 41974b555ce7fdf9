"""Section `optimizer` of a learner's configuration: what its author says, and what follows where nothing is said.

A `set` policy is taught by replays of clusters' pasts, whose steps are counted in spreads; live gradients teach it
nothing (docs/results/twin_learning.md, docs/experiments.md), but steps of such length without direction do harm. So
both ends go by the policy's kind: agents by `learning.source`, the learner by `optimizer.units`.
"""

from __future__ import annotations

from enum import StrEnum

from pydantic import Field

from global_learner.aggregation.settings import AdamSettings, AggregationSettings, OptimizerSettings, Units
from policy_net.exchange.spec import SetSpec, WeightSpec

WEIGHTS_RATE = 1e-4
"""Of `dl2`. Source: DL2 §4.3."""
SPREADS_RATE = 0.1
"""The end of the rates that taught `set-taught`, 0.3 falling to 0.1: where a fleet goes on from a policy that was
taught, it begins with the smallest."""
SPREADS_DECAY_STEPS = 300
"""Half the length after as many updates; those that taught `set-taught` had theirs after 800."""


class ChosenUnits(StrEnum):
    """What a step is counted in, as a configuration says it."""

    AUTO = "auto"
    WEIGHTS = "weights"
    SPREADS = "spreads"


class OptimizerChoice(AdamSettings):
    """How one gradient moves the head. Source: Kingma & Ba 2015; DL2 §4.3 (learning rate)."""

    units: ChosenUnits = ChosenUnits.AUTO
    """What `learning_rate` and `trust_radius` are counted in. `weights`: the same for every parameter. `spreads`: how
    far each parameter of a `set` policy has to move to be noticed, so that exponents, residual and sessions are learned
    at one pace; only updates from replays of clusters' pasts are taken then (the agents' `learning.source`). `auto`:
    spreads for a `set` policy, weights for `dl2`, where `learning_rate` or `trust_radius` is set (they would be of
    another size), where there is `privacy`, and where a strategy takes the steps itself. A region takes no steps: there
    it says which updates are taken, `weights` all of them, where the learner above counts so."""
    learning_rate: float | None = Field(None, ge=0.0, le=1.0)
    """Adam's step for an update that is not stale; 0 leaves the weights bit for bit (a control). Unless set: DL2's
    1e-4 in weights, and 0.1 in spreads."""
    decay_steps: int | None = Field(None, ge=1)
    """The step shrinks as 1 / (1 + moves of the head / this), those in these units. Unless set: 300 in spreads, if
    `learning_rate` is not set either; else it never shrinks. A constant step learns first and then wanders: at 2e-4 in
    weights the policy was best after some 5,000 updates and worse than it began after 9,000."""
    trust_radius: float | None = Field(None, ge=0.0, le=1e6)
    """No parameter moves further than this from the first version's; 0: no limit. Unless set: for `set` 5 in spreads,
    and 0.1 in weights, as its first version is trained well and its live gradient is mostly noise; none for `dl2`,
    which has far to go."""

    def settled(self, spec: WeightSpec, aggregation: AggregationSettings, *, noisy: bool) -> OptimizerSettings:
        """What holds for policies of a spec; contradictions are `build_aggregator`'s to refuse.

        Args:
            noisy: whether noise is added to updates, which would walk as far as what it hides.
        """
        units = self._units_for(spec, aggregation, noisy)
        rate, decay_steps = self.learning_rate, self.decay_steps
        in_spreads = units is Units.SPREADS
        if rate is None:
            rate = SPREADS_RATE if in_spreads else WEIGHTS_RATE
            decay_steps = SPREADS_DECAY_STEPS if decay_steps is None and in_spreads else decay_steps
        return OptimizerSettings(
            learning_rate=rate,
            decay_steps=decay_steps,
            units=units,
            trust_radius=self.trust_radius,
            beta1=self.beta1,
            beta2=self.beta2,
            epsilon=self.epsilon,
        )

    def only_replays(self, spec: WeightSpec, aggregation: AggregationSettings, *, noisy: bool) -> bool:
        """Whether updates from live experience are refused.

        A region does not hear in what the learner above counts: unless it is told, it takes the default to be so.
        """
        if aggregation.passes_up:
            return isinstance(spec, SetSpec) and self.units is not ChosenUnits.WEIGHTS
        return self._units_for(spec, aggregation, noisy) is Units.SPREADS

    def _units_for(self, spec: WeightSpec, aggregation: AggregationSettings, noisy: bool) -> Units:
        if self.units is not ChosenUnits.AUTO:
            return Units(self.units.value)
        free = self.learning_rate is None and self.trust_radius is None and not noisy
        own_steps = not aggregation.passes_up and not aggregation.strategy_steps
        return Units.SPREADS if isinstance(spec, SetSpec) and free and own_steps else Units.WEIGHTS
