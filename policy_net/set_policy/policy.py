"""The `set` policy: a planner on beliefs that it learns online, tilted by a learned residual.

Whatever the residual says, the planner's gains decide what is admissible; and what the beliefs say is corrected by what
the cluster shows. The policies that ship with the package are `set`, made by `python -m benchmarks.set_default` on
generated workloads alone, and `set-taught`, what clusters made of it by replays of their pasts, by `python -m
benchmarks.twin_learning --write`; their cards (`policy-net inspect`) have seeds, scores and clusters.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import replace

import numpy as np

from policy_net.domain import (
    ClusterState,
    Decision,
    PlacementEffect,
    PolicyContext,
    Progress,
    SpeedModel,
    Trigger,
)
from policy_net.errors import BadInput, PolicyFileError
from policy_net.exchange.policy_file import PolicyFile
from policy_net.exchange.shipped import SHIPPED_FILES, shipped_file
from policy_net.exchange.spec import PRICES_VERSION, SESSIONS_VERSION, SET, SET_TAUGHT, SetSpec, Weights, split_weights
from policy_net.exchange.statistics import SpeedStatistic
from policy_net.set_policy.beliefs import SetBeliefs
from policy_net.set_policy.places import PlacedGrants, PlaceView, dealt
from policy_net.set_policy.planner import Array, Chance, SetSamples, Tilt, Weighed, drawn_plan, plan
from policy_net.set_policy.pools import PlaceTables
from policy_net.set_policy.residual import Residual, job_inputs, uncertainty_of
from policy_net.set_policy.sessions import SessionTerms
from policy_net.set_policy.steps import NO_COST, Prices, PriceTerms, ResizeCost, StepTable, StepTables, keeping

DEFAULT_SET_FILE = SHIPPED_FILES[SET]


class SetPolicy:
    """Allocates with planner, beliefs and residual; deterministic, also where it draws.

    The random numbers of a decision depend on the seed and the decision's index alone, so that a logged decision can be
    made again.

    Args:
        speeds: plan on these in place of beliefs; for yardsticks only.
        effect: plan on this effect of places in place of beliefs; for yardsticks only.
        places: whether decisions say where tasks go, where a state says where they lie.
        exploration: probability of the runner-up instead, at every pick.
    """

    def __init__(
        self,
        spec: SetSpec,
        weights: Weights,
        priors: Sequence[SpeedStatistic] = (),
        *,
        speeds: SpeedModel | None = None,
        effect: PlacementEffect | None = None,
        places: bool = True,
        seed: int = 0,
        greedy: bool = True,
        exploration: float = 0.0,
        label: str = SET,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        self.spec = spec
        self.seed = seed
        self.chance = Chance(spec.temperature, greedy, exploration)
        self.decision_index = 0
        self.priors = tuple(priors)
        self.beliefs = SetBeliefs(priors) if speeds is None else None
        self.inference_seconds: list[float] = []
        self.speeds = speeds
        self._tables = StepTables(speeds if self.beliefs is None else self.beliefs)  # type: ignore[arg-type]  # one is
        self.given_effect = effect
        self.plans_places = places and (self.beliefs is not None or effect is not None)
        self._place_tables = PlaceTables()
        self.load_weights(weights)
        self.name = label
        self._clock = clock

    def load_weights(self, weights: Weights) -> None:
        """Act with another residual, and other prices, from the next decision on.

        Raises:
            SpecMismatch: it is not of this policy's spec.
        """
        self.residual = Residual(self.spec, weights)
        self.price_terms = PriceTerms.of(self.spec, weights)
        self.session_terms = SessionTerms.of(self.spec, weights)
        self._use_sessions()

    def inherit(self, other: SetPolicy, shared: Callable[[str], bool] = lambda _: True, *, copy: bool = False) -> None:
        """Take over another policy's beliefs.

        With the same priors these are its very beliefs; otherwise its observations, on this policy's priors less its
        part in them. `shared` says whether a type's speeds were shared with the maker of the priors. With `copy` both
        policies go on, each with beliefs of its own.
        """
        if self.beliefs is None or other.beliefs is None:
            return
        if self.priors == other.priors and copy:
            self.beliefs.go_on_from(other.beliefs.checkpoint())
        elif self.priors == other.priors:
            self.beliefs, self._tables = other.beliefs, other._tables
        else:
            self.beliefs.restore(other.beliefs.snapshot())
            self.beliefs.leave_out_own(shared)
        self._use_sessions()

    def _use_sessions(self) -> None:
        if self.beliefs is not None:
            self.beliefs.use_sessions(self.session_terms)

    def decide(self, state: ClusterState, trigger: Trigger) -> Decision:
        """Allocate tasks to the jobs of `state`, from zero; the same at every trigger."""
        if not self.chance.greedy or self.chance.exploration > 0.0:
            return self.decide_recorded(state, trigger)[0]
        self.decision_index += 1
        state, tables, prices = self._introduced(state)
        tilts = None
        if tables and not self.residual.silent:
            began = self._clock()
            tilts = self.residual.tilts(self._inputs(state, tables))
            self.inference_seconds.append(self._clock() - began)
        return self._planned(state, tables, tilts, prices)

    def decide_recorded(self, state: ClusterState, trigger: Trigger) -> tuple[Decision, SetSamples]:
        """Decide, and keep what a learner needs of every pick; the same at every trigger."""
        del trigger
        generator = np.random.default_rng((self.seed, self.decision_index))
        self.decision_index += 1
        state, tables, prices = self._introduced(state)
        began = self._clock()
        inputs_JF = self._inputs(state, tables)
        tilts = self.residual.tilts(inputs_JF)
        self.inference_seconds.append(self._clock() - began)
        open_grants = None
        if self._has_places(state):
            in_places = self._in_places(state, tables, tilts, prices)
            open_grants = lambda: PlacedGrants(*in_places)  # noqa: E731  (opened twice, of one view)
        return drawn_plan(
            *(state, tables, tilts, inputs_JF, self.chance, generator),
            restart_seconds=self._restart_seconds,
            work_exponent=prices.work_exponent,
            open_grants=open_grants,
        )

    def weighed(self, state: ClusterState, cost: ResizeCost | None = None) -> tuple[list[Weighed], list[StepTable]]:
        """Every step that the plan of this state looks at when nothing is left to chance, and the tables of its jobs.

        For people who ask why; like a decision, it introduces the jobs to the beliefs. `cost` is what resizes are to
        cost; None: what was measured.
        """
        state, tables, prices = self._introduced(state, cost)
        found: list[Weighed] = []
        tilts = self.residual.tilts(self._inputs(state, tables)) if tables else None
        self._planned(state, tables, tilts, prices, found, cost)
        return found, tables

    def planned_in_places(self, state: ClusterState) -> tuple[PlaceView, Decision] | None:
        """What the plan of this state knows of places, and what it makes of it; None where they do not count."""
        if not self._has_places(state):
            return None
        state, tables, prices = self._introduced(state)
        tilts = self.residual.tilts(self._inputs(state, tables)) if tables else None
        view, wished = self._in_places(state, tables, tilts, prices)
        grants = PlacedGrants(view, wished)
        return view, plan(state, tables, tilts, None, self._restart_seconds, prices.work_exponent, grants)

    def observe(self, progress: Sequence[Progress]) -> None:
        """Sharpen the beliefs."""
        if self.beliefs is not None:
            self.beliefs.observe(progress if self.plans_places else [replace(entry, places=()) for entry in progress])

    def _planned(
        self,
        state: ClusterState,
        tables: list[StepTable],
        tilts: Sequence[Tilt] | None,
        prices: Prices,
        found: list[Weighed] | None = None,
        cost: ResizeCost | None = None,
    ) -> Decision:
        grants = PlacedGrants(*self._in_places(state, tables, tilts, prices, cost)) if self._has_places(state) else None
        return plan(state, tables, tilts, found, self._restart_seconds, prices.work_exponent, grants)

    def _has_places(self, state: ClusterState) -> bool:
        return self.plans_places and state.placement is not None

    def _in_places(
        self,
        state: ClusterState,
        tables: Sequence[StepTable],
        tilts: Sequence[Tilt] | None,
        prices: Prices,
        cost: ResizeCost | None = None,
    ) -> tuple[PlaceView, dict[int, int]]:
        """What the decision knows of places, and the pool that each job is offered first."""
        effect, version = self.given_effect, 0
        if effect is None:
            assert self.beliefs is not None  # noqa: S101  (one of the two is there, or places do not count)
            effect, version = self.beliefs.places, self.beliefs.places.version
        this_effect = (effect, version)  # restored beliefs begin with a version that others had
        pools = self._place_tables.pools(state)
        speeds = self.speeds if self.beliefs is None else self.beliefs
        assert speeds is not None  # noqa: S101  (without beliefs, speeds were given)
        in_pools = tuple(
            tuple(
                self._place_tables.of(job, pool, speeds.grid(job.job_type), effect, this_effect, prices)
                for job in state.jobs
            )
            for pool in pools
        )
        view = PlaceView(state, pools, in_pools, effect, self._restart_seconds)
        cost = self.resize_cost if cost is None else cost
        if cost.seconds > 0.0:
            pools_now = [view.pool_of(job) for job in state.jobs]
            now = [
                (tables[index] if pool is None else in_pools[pool][index]).speed(job.current)
                for index, (job, pool) in enumerate(zip(state.jobs, pools_now, strict=True))
            ]
            kept = tuple(
                tuple(
                    keeping(state.jobs, each, cost, prices.speed_exponent, [pool == number for pool in pools_now], now)
                )
                for number, each in enumerate(in_pools)
            )
            view = replace(view, tables=kept)
        if len(pools) == 1:
            return view, {}
        return view, dealt(view, plan(state, tables, tilts, None, self._restart_seconds, prices.work_exponent))

    @property
    def _restart_seconds(self) -> float:
        return 0.0 if self.beliefs is None else self.beliefs.restarts.seconds

    @property
    def resize_cost(self) -> ResizeCost:
        """What resizes have cost so far."""
        return NO_COST if self.beliefs is None else self.beliefs.restarts.resize_cost

    def _introduced(
        self, state: ClusterState, cost: ResizeCost | None = None
    ) -> tuple[ClusterState, list[StepTable], Prices]:
        """The state as believed, where that is more than it shows, the tables of its jobs, and their prices."""
        if self.beliefs is not None:
            state = self.beliefs.expecting(state)
        tables = [self._tables.of(job) for job in state.jobs]
        prices = self.price_terms.of_state(state, tables)
        for table in tables:
            table.count_in(prices)
        cost = self.resize_cost if cost is None else cost
        return state, keeping(state.jobs, tables, cost, prices.speed_exponent), prices

    def _inputs(self, state: ClusterState, tables: Sequence[StepTable]) -> Array:
        uncertainties = [
            uncertainty_of(self.beliefs, job, table) for job, table in zip(state.jobs, tables, strict=True)
        ]
        return job_inputs(state, tables, uncertainties)


def default_set_file() -> PolicyFile:
    """The file of `set`, read once.

    Raises:
        PolicyFileError: it is missing or damaged: the package was installed badly.
    """
    return shipped_file(SET)


def set_policy_of(content: PolicyFile, label: str, *, places: bool = True) -> SetPolicy:
    """The policy of a file that holds a `set` policy, with beliefs that start from the file's priors.

    Raises:
        PolicyFileError: the file holds another kind.
    """
    return SetPolicy(set_spec_of(content, label), content.weights, content.priors, places=places, label=label)


def set_spec_of(content: PolicyFile, label: str) -> SetSpec:
    """The spec of a file that holds a `set` policy.

    Raises:
        PolicyFileError: the file holds another kind.
    """
    if not isinstance(content.spec, SetSpec):
        raise PolicyFileError(f"{label}: holds a {content.spec.policy!r} policy, not a set policy")
    return content.spec


def build_set(context: PolicyContext) -> SetPolicy:  # noqa: ARG001  (plans on its own beliefs, no truth)
    """Build the policy registered as `set`."""
    return set_policy_of(default_set_file(), "set")


def build_set_taught(context: PolicyContext) -> SetPolicy:  # noqa: ARG001  (as `build_set`)
    """Build the policy registered as `set-taught`."""
    return set_policy_of(shipped_file(SET_TAUGHT), SET_TAUGHT)


def build_set_fresh(context: PolicyContext) -> SetPolicy:  # noqa: ARG001  (as `build_set`)
    """Build the policy registered as `set-fresh`: the same weights, but nothing known of any type's speed at first."""
    content = default_set_file()
    return SetPolicy(set_spec_of(content, "set"), content.weights, label="set-fresh")


GROUPS = {"prices": PRICES_VERSION, "sessions": SESSIONS_VERSION}
"""Groups of a spec (`exchange.spec.SetSpec`) and the version that a file gets."""


def extended(content: PolicyFile, label: str, groups: Collection[str] = tuple(GROUPS)) -> PolicyFile:
    """The policy of a file with further groups; all others keep their numbers.

    Raises:
        BadInput: the file has one of them already.
        PolicyFileError: it holds another kind of policy.
    """
    spec = set_spec_of(content, label)
    there = [group for group in GROUPS if group in groups and getattr(spec, group)]
    if there:
        raise BadInput(f"{label}: has {' and '.join(there)} already; leave --with {there[0]} out")
    wider = spec.model_copy(update={group: GROUPS[group] for group in groups})
    weights = np.zeros(wider.parameter_count, dtype=np.float32)
    before = split_weights(content.weights, spec)
    for name, values in split_weights(weights, wider).items():
        if name in before:
            values[:] = before[name]
    card = {**content.card, "extended_with": ", ".join(sorted(groups)), "extended_from": spec.digest}
    return PolicyFile(wider, weights, card, content.priors)
