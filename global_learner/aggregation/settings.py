"""Settings under which a log of updates is written, `optimizer` and `aggregation`, and their copy beside it.

A replay of the log must not depend on the present configuration.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Mapping
from enum import StrEnum
from pathlib import Path
from types import MappingProxyType
from typing import Any

from pydantic import Field, ValidationError, model_validator

from foundation.files import PRIVATE, write_whole
from foundation.text import parse_json
from global_learner.errors import BadLearnerConfig, StateUnusable
from policy_net.exchange.spec import SET, PolicySpec, SetSpec, Weights, WeightSpec
from policy_net.privacy.settings import NoiseSettings
from policy_net.set_policy.spreads import spreads_of
from policy_net.settings import Constant, Section

AGGREGATION_NAME = "aggregation.json"
"""In the state directory from the first start on: the settings under which its log was written."""
SET_TRUST_RADIUS = 0.1
"""A third of what the parameters of the shipped policy measure on average."""
SPREADS_TRUST_RADIUS = 5.0
"""Half as far again as any parameter that paid went in docs/results/twin_learning.md."""


class Units(StrEnum):
    """What a step is counted in."""

    WEIGHTS = "weights"
    SPREADS = "spreads"


class AdamSettings(Section):
    """Constants of Adam. Source: Kingma & Ba 2015."""

    beta1: Constant[float] = Field(0.9, ge=0.0, lt=1.0)
    """Memory of the gradient; Adam's own default."""
    beta2: Constant[float] = Field(0.999, ge=0.0, lt=1.0)
    """Memory of its square; Adam's own default."""
    epsilon: Constant[float] = Field(1e-8, gt=0.0, le=1.0)
    """Keeps rarely used parameters from jumping; Adam's own default."""


class OptimizerSettings(AdamSettings):
    """How one gradient moves the head, with nothing left open; for replays of a log.

    The defaults hold for a copy beside an older log; those of a configuration are `OptimizerChoice`'s.
    Source: Kingma & Ba 2015; DL2 §4.3 (learning rate).
    """

    learning_rate: float = Field(1e-4, ge=0.0, le=1.0)
    decay_steps: int | None = Field(None, ge=1)
    units: Units = Units.WEIGHTS
    trust_radius: float | None = Field(None, ge=0.0, le=1e6)

    def radius_for(self, spec: WeightSpec) -> float:
        """The trust radius for policies of this spec; 0 for none."""
        if self.trust_radius is not None:
            return self.trust_radius
        if spec.policy != SET:
            return 0.0
        return SPREADS_TRUST_RADIUS if self.units is Units.SPREADS else SET_TRUST_RADIUS

    def units_for(self, spec: WeightSpec) -> Weights | None:
        """Unit of each parameter, shape (parameter_count,); None where it is 1.

        Raises:
            BadConfig: parameters of such a policy have no spreads.
        """
        if self.units is Units.WEIGHTS:
            return None
        if not isinstance(spec, SetSpec):
            raise BadLearnerConfig(
                f"setting optimizer.units: spreads are of set policies, and this is {spec.policy}; leave it out"
            )
        return spreads_of(spec)

    def rate_at(self, moves: int) -> float:
        """The learning rate after so many moves of the head, before staleness."""
        return self.learning_rate if self.decay_steps is None else self.learning_rate / (1 + moves / self.decay_steps)


class AggregationMode(StrEnum):
    """When the head moves."""

    ASYNC = "async"
    BUFFERED = "buffered"
    ROBUST = "robust"
    ROUNDS = "rounds"


class ServerStep(StrEnum):
    """Who turns the aggregate of a cohort into new weights."""

    ADAM = "adam"
    STRATEGY = "strategy"


OWN_STEP = ("FedAvgM", "FedAdam", "FedAdagrad", "FedYogi")
"""Strategies that are an optimizer themselves."""
ROBUST: Mapping[str, Any] = MappingProxyType(
    {
        "strategy": "MultiKrum",
        "parameters": {"num_malicious_nodes": 1},
        "vote_momentum": 0.9,
        "types_of_one": True,
    }
)
"""What mode `robust` is made of; see docs/results/robustness.md."""


class AggregationSettings(Section):
    """How the updates of many clusters become one head."""

    mode: AggregationMode = AggregationMode.ASYNC
    """`async`: every update at once (A3C). `buffered`: cohorts of `buffer` clusters through a Flower strategy.
    `robust`: `buffered` as it loses least to a bad cluster: MultiKrum of all but one, on votes with a memory of 0.9 in
    place of `beta1`, one vote a cluster whatever it claims, and cohorts of those that take part at present. `rounds`:
    the learner asks the clusters, round by round; they do not push. Where the section `aggregation` is left out it is
    `async` if only this machine can reach the learner, else `robust`."""
    strategy: str = "FedMedian"
    """A strategy of `flwr.serverapp.strategy`: FedAvg, FedAvgM, FedAdam, FedAdagrad, FedYogi, FedMedian, FedTrimmedAvg,
    Krum, MultiKrum, Bulyan. The default gives every cluster one vote a parameter. Not used by `async`."""
    parameters: dict[str, float] = Field(default_factory=dict)
    """The strategy's own parameters by Flower's names, such as `beta: 0.2` or `num_malicious_nodes: 1`; Flower's
    defaults unless set."""
    buffer: int = Field(5, ge=1, le=1024)
    """`buffered`: how many different clusters make a cohort. 5 outvote one bad cluster with every strategy here but
    Bulyan, which needs 7. Not above the number of clusters that push, or the head stands."""
    close_after_updates: Constant[int | None] = Field(None, ge=1, le=1_000_000)
    """`buffered`: a cohort that lacks clusters is closed all the same after so many updates, if `min_clusters` are in
    it; unless set, it waits."""
    min_clusters: int = Field(3, ge=1, le=1024)
    """Fewest clusters of a round; 3 is the least that can outvote one."""
    samples_limit: Constant[int] = Field(8192, ge=1)
    """An update weighs by its samples, of which at most so many count: a cluster cannot give itself a majority by
    claiming a billion. DL2's replay holds 8192."""
    vote_momentum: Constant[float] = Field(0.0, ge=0.0, lt=1.0)
    """`buffered`: a cluster's vote is the running mean of its updates, in which each cohort keeps this share of the
    past. At 0.9 a vote has a quarter of a single gradient's noise, and a robust strategy sees who votes against the
    others all the time. Takes one policy's size of memory a cluster."""
    types_of_one: Constant[bool] = False
    """`robust`: whether the only cluster with jobs of a type has its say on that type's inputs of a `dl2` network. The
    strategy leaves out the vote that is least like the others, which may be that cluster's, cohort after cohort."""
    largest_sample_weight: Constant[float] = Field(2.0, ge=0.0, le=100.0)
    """`async`: the step of an update is as many times as long as it has as many samples as is usual among the active
    clusters, but not more often than this, whatever a cluster claims; 0: all steps are alike."""
    server_step: Constant[ServerStep | None] = None
    """`buffered`: `adam` moves the head by the aggregated gradient through the same Adam as `async`; `strategy` leaves
    the step to the strategy. Unless set: strategy for FedAvgM, FedAdam, FedAdagrad and FedYogi, else adam."""
    client_learning_rate: Constant[float] = Field(0.01, gt=0.0, le=10.0)
    """Length of the gradient step of which a cluster's model is the end, where the strategy aggregates models
    (`rounds`, and `server_step: strategy`). At gradients of norm 1 it moves the weights by 0.01."""
    local_steps: Constant[int] = Field(1, ge=1, le=1000)
    """`rounds`: gradient steps that a cluster takes from the weights it was sent."""
    passes_up: Constant[bool] = False
    """Whether the steps are left to a learner above; follows from the section `upstream`."""
    round_seconds: Constant[float] = Field(60.0, gt=0.0, le=86_400.0)
    """`rounds`: longest wait for the clusters' answers; a round goes on with those that came."""

    @property
    def strategy_steps(self) -> bool:
        """Whether a strategy turns updates into steps, in the place of Adam; it knows no units."""
        if self.mode is AggregationMode.BUFFERED:
            chosen = self.server_step
            return self.strategy in OWN_STEP if chosen is None else chosen is ServerStep.STRATEGY
        return self.mode is AggregationMode.ROUNDS

    @model_validator(mode="before")
    @classmethod
    def _recipe(cls, values: Any) -> Any:
        if isinstance(values, dict) and values.get("mode") == AggregationMode.ROBUST.value:
            return {**ROBUST, **values}
        return values

    @model_validator(mode="after")
    def _consistent(self) -> AggregationSettings:
        own_strategy = self.strategy != ROBUST["strategy"] or self.server_step is not None
        if self.mode is AggregationMode.ROBUST and own_strategy:
            raise ValueError("mode robust has a strategy and a step of its own: leave them out, or take mode buffered")
        if 0.0 < self.largest_sample_weight < 1.0:
            raise ValueError(
                f"largest_sample_weight = {self.largest_sample_weight} would shorten every step: 0, or 1 and more"
            )
        closes_early = self.mode is AggregationMode.BUFFERED and self.close_after_updates is not None
        if closes_early and self.min_clusters > self.buffer:
            raise ValueError(
                f"min_clusters = {self.min_clusters} is above buffer = {self.buffer}: no cohort is ever closed early"
            )
        return self


def read_settings(state_dir: Path) -> tuple[AggregationSettings, OptimizerSettings] | None:
    """The settings of the log; None in a state directory that has none yet.

    Raises:
        StateUnusable: they are damaged.
    """
    path = state_dir / AGGREGATION_NAME
    try:
        content = parse_json(path.read_text())
        found = (
            AggregationSettings.model_validate({"types_of_one": False, **content["aggregation"]}),  # as it was before
            OptimizerSettings.model_validate(content["optimizer"]),
        )
        checksum = content.get("checksum")
    except FileNotFoundError:
        return None
    except (ValueError, TypeError, KeyError, AttributeError, ValidationError) as error:
        raise StateUnusable(f"{path}: damaged; restore the state directory from a copy") from error
    if checksum not in (None, _checksum(content)):
        raise StateUnusable(f"{path}: damaged: its checksum is another; restore the state directory from a copy")
    return found


def write_settings(state_dir: Path, aggregation: AggregationSettings, optimizer: OptimizerSettings) -> None:
    """Keep the settings for all that is logged from now on, whole or not at all.

    Raises:
        OSError: they could not be written.
    """
    path = state_dir / AGGREGATION_NAME
    content = {"aggregation": aggregation.model_dump(mode="json"), "optimizer": optimizer.model_dump(mode="json")}
    text = json.dumps({**content, "checksum": _checksum(content)}, indent=2) + "\n"
    if path.exists() and path.read_text() == text:
        return
    write_whole(path, text, alone=True, mode=PRIVATE)


def _checksum(content: Mapping[str, Any]) -> int:
    """Of all but the checksum itself; a digit that was flipped is still a number."""
    rest = {name: value for name, value in content.items() if name != "checksum"}
    return zlib.crc32(json.dumps(rest, sort_keys=True).encode())


class PrivacyMode(StrEnum):
    """Who adds the noise."""

    CENTRAL = "central"
    LOCAL = "local"


class PrivacySettings(NoiseSettings):
    """Differential privacy of one cluster's updates; off where the section is left out."""

    mode: PrivacyMode = PrivacyMode.CENTRAL
    """`central`: the learner clips and adds noise to each update before it writes or applies it. `local`: agents do so
    before anything leaves them (their own section `privacy`); the learner takes no update that does not say so, and
    counts what they spend. It cannot see whether what an agent says is true."""


def check_covered(aggregation: AggregationSettings, *, is_region: bool) -> None:
    """Raise ValueError, with one line, if noise cannot be put on the updates of such a learner."""
    if aggregation.mode is AggregationMode.ROUNDS:
        raise ValueError(
            "privacy does not cover aggregation.mode rounds, whose answers are no single gradients: take async, "
            "buffered or robust, or leave privacy out"
        )
    if is_region:
        raise ValueError(
            "privacy is for the learner that makes versions, and upstream makes this one a region, whose versions are "
            "made above: set privacy there, and in the clusters, or leave out upstream"
        )


# Section `optimizer` of a learner's configuration, and its defaults by the kind of policy.
#
# Policies learn from replays of clusters' pasts. Live gradients teach `set` nothing (docs/results/twin_learning.md,
# docs/experiments.md), and its steps, counted in spreads, do harm without direction; of `dl2` both teach, each at a
# rate of its own, so that mixed they fit neither. So both ends decide alike: agents' `learning.source`, the learner's
# `optimizer.units`.

WEIGHTS_RATE = 1e-4
"""Of live gradients of `dl2`. Source: DL2 §4.3."""
REPLAYED_RATE = 3e-3
"""Of `dl2`'s lessons, each of which is some steps of 1e-3 long; at a third of it a fleet of eight learned a third as
fast (docs/results/dl2_learning.md)."""
REPLAYED_DECAY_STEPS = 3000
"""Half the length after as many updates, and a tenth at 27,000, as at the end of a training."""
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
    spreads for a `set` policy, weights where `learning_rate` or `trust_radius` is set (they would be of another size),
    where there is `privacy`, and where a strategy takes the steps itself. For `dl2` it is weights in any case, and says
    which updates are taken: `auto` those from replays, `weights` live ones too, if the policy has a critic. A region
    takes no steps: there it says which updates are taken, `weights` all of them, where the learner above counts so."""
    learning_rate: float | None = Field(None, ge=0.0, le=1.0)
    """Adam's step for an update that is not stale; 0 leaves the weights bit for bit (a control). Unless set: DL2's
    0.1 in spreads; in weights 3e-3 for `dl2`, and DL2's 1e-4 where live updates or noise come too, and for `set`."""
    decay_steps: int | None = Field(None, ge=1)
    """The step shrinks as 1 / (1 + moves of the head / this), those in these units. Unless set: 300 in spreads and 3000
    for `dl2`'s 3e-3, if `learning_rate` is not set either; else it never shrinks. A constant step learns first and then
    wanders: at 2e-4 in weights a policy was best after some 5,000 updates and worse than it began after 9,000."""
    trust_radius: float | None = Field(None, ge=0.0, le=1e6)
    """No parameter moves further than this from the first version's; 0: no limit. Unless set: for `set` 5 in spreads,
    and 0.1 in weights, as its first version is trained well and its live gradient is mostly noise; none for `dl2`,
    which has far to go."""

    def resolved(self, spec: WeightSpec, aggregation: AggregationSettings, *, noisy: bool) -> OptimizerSettings:
        """Settings for policies of a spec; `build_aggregator` refuses contradictions.

        Args:
            noisy: whether noise is added to updates, which would walk as far as what it hides.
        """
        units = self._units_for(spec, aggregation, noisy)
        rate, decay_steps = self.learning_rate, self.decay_steps
        in_spreads = units is Units.SPREADS
        if rate is None:
            rate, usual_decay = WEIGHTS_RATE, None
            if in_spreads:
                rate, usual_decay = SPREADS_RATE, SPREADS_DECAY_STEPS
            elif isinstance(spec, PolicySpec) and not noisy and self.only_replays(spec, aggregation, noisy=noisy):
                rate, usual_decay = REPLAYED_RATE, REPLAYED_DECAY_STEPS
            decay_steps = usual_decay if decay_steps is None else decay_steps
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
        """Whether updates from live experience are refused; a region assumes the default units above, unless set.

        In mode `rounds` none is: what the learner asks for is answered from live experience.
        """
        if aggregation.mode is AggregationMode.ROUNDS:
            return False
        if not isinstance(spec, SetSpec) or aggregation.passes_up:
            return self.units is not ChosenUnits.WEIGHTS or not spec.learns_live
        return self._units_for(spec, aggregation, noisy) is Units.SPREADS

    def _units_for(self, spec: WeightSpec, aggregation: AggregationSettings, noisy: bool) -> Units:
        if self.units is not ChosenUnits.AUTO:
            return Units(self.units.value)
        free = self.learning_rate is None and self.trust_radius is None and not noisy
        own_steps = not aggregation.passes_up and not aggregation.strategy_steps
        return Units.SPREADS if isinstance(spec, SetSpec) and free and own_steps else Units.WEIGHTS
