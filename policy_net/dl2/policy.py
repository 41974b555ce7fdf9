"""The learned policy: one inference after another until void or nothing fits, batch by batch in arrival order.

Legend: M micro-actions of one decision, F features, A actions.
Source: DL2 §4.1 (inference repeats with the state updated; more than J jobs: batches of J in arrival order); §4.3
(job-aware exploration: where an allocation looks lopsided, sometimes try what would repair it).
"""

from __future__ import annotations

import time
from collections.abc import Collection, Hashable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import numpy as np
from numpy.typing import NDArray

from policy_net.dl2.action import GRANT_KINDS, Grant
from policy_net.dl2.batch import BatchEncoder, JobBatch, batches_of
from policy_net.dl2.network import ActingNetwork
from policy_net.domain import Allocation, ClusterState, Decision, JobKind, PolicyContext, Progress, Trigger
from policy_net.errors import PolicyFileError
from policy_net.exchange.policy_file import LESSONS, TAUGHT, PolicyFile
from policy_net.exchange.shipped import shipped_file
from policy_net.exchange.spec import DL2, PolicySpec, Weights

LOPSIDED_RATIO = 10
"""Source: DL2 §4.3."""


class ActingMode(StrEnum):
    """Whether the policy takes its best action or draws one."""

    GREEDY = "greedy"
    SAMPLE = "sample"


@dataclass(frozen=True, slots=True)
class DecisionSamples:
    """The micro-actions of one decision that were a choice, as they were made.

    Attributes:
        features_MF: float32, what the network saw.
        masks_MA: bool, what was admissible.
        actions_M: int64, what was taken.
        behaviour_M: float64, with which probability, masks and exploration included.
        jobs_M: int64, to which job of the state it gave; -1 for void.
    """

    features_MF: NDArray[np.float32]
    masks_MA: NDArray[np.bool_]
    actions_M: NDArray[np.int64]
    behaviour_M: NDArray[np.float64]
    jobs_M: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.actions_M)

    @classmethod
    def joined(cls, parts: Sequence[DecisionSamples]) -> DecisionSamples:
        """Those of several decisions of one state, one after the other."""
        return cls(*(np.concatenate([getattr(part, name) for part in parts]) for name in cls.__dataclass_fields__))

    @property
    def form(self) -> Hashable:
        """See `Samples.form`."""
        return ("dl2", self.features_MF.shape[1], self.masks_MA.shape[1])

    @property
    def finite(self) -> bool:
        """See `Samples.finite`."""
        return bool(np.isfinite(self.behaviour_M).all() and np.isfinite(self.features_MF).all())


@dataclass(frozen=True, slots=True)
class JobAwareExploration:
    """Proposals that repair the first lopsided job, taken with probability ε in place of the policy's action.

    Lopsided are several workers and no parameter server, several parameter servers and no worker, and more than ten
    times as many of one as of the other. Source: DL2 §4.3 (ε is 0.4 in the preprint).
    """

    epsilon: float = 0.4

    def propose(self, batch: JobBatch) -> int | None:
        """The repairing action, if there is one and it is admissible."""
        for column, (workers, ps) in enumerate(zip(batch.workers, batch.ps, strict=True)):
            if workers <= 1 and ps <= 1:
                continue
            if workers > LOPSIDED_RATIO * ps:
                index = GRANT_KINDS * column + Grant.PS
            elif ps > LOPSIDED_RATIO * workers:
                index = GRANT_KINDS * column + Grant.WORKER
            else:
                continue
            if batch.mask_A[index]:
                return int(index)
        return None


@dataclass(frozen=True, slots=True)
class GroupChoice:
    """How many decisions are drawn to be compared, and where: in every `every`-th state, from number `phase` on.

    Attributes:
        exploration: ε of job-aware exploration, in the draws and in what is done.
    """

    draws: int = 20
    every: int = 10
    phase: int = 0
    exploration: float = 0.0


ENOUGH_LESSONS = 2000
"""Of one cluster, until its network may decide for any jobs there: as many steps brought asynchronous jobs from 2.6
times DRF's JCT to 1.04 (docs/experiments.md). From then on a rollout's verdict judges."""


@dataclass(frozen=True, slots=True)
class TaughtJobs:
    """Jobs for which a network was taught, so that it does no worse than fair sharing; the guard keeps it from others.

    Attributes:
        at_once: most that are there at once. A network sees one batch of J, and weighs none of its jobs against those
            behind.
        kinds: of jobs.
        beside: kinds of jobs that may be there beside those: alone, it does no better with them.
    """

    at_once: int
    kinds: frozenset[JobKind]
    beside: frozenset[JobKind] = frozenset()

    @classmethod
    def of_card(cls, card: Mapping[str, Any], source: str, cluster: str = "") -> TaughtJobs | None:
        """What a card says; None where it says nothing, or lessons of this cluster have taught the rest.

        Raises:
            PolicyFileError: it says something else; `source` names the file.
        """
        said = card.get(TAUGHT)
        if said is None:
            return None
        try:
            kinds, beside = (frozenset(map(JobKind, said.get(name, ()))) for name in ("kinds", "beside"))
            taught = cls(int(said["at_once"]), kinds, beside)
            return None if int(said.get(LESSONS, {}).get(cluster, 0)) >= ENOUGH_LESSONS else taught
        except (LookupError, TypeError, ValueError, OverflowError, AttributeError) as error:
            raise PolicyFileError(
                f"{source}: {TAUGHT!r} on its card is {str(said)[:80]}: use at_once, a number of jobs, and kinds, a"
                f" list of {', '.join(JobKind)}; or train it again"
            ) from error

    def lacking(self, jobs: int, kinds: Collection[JobKind]) -> str:
        """What was never taught of so many jobs at once, of these kinds, in a few words; empty if all was."""
        strange = [_JOBS_OF[kind] for kind in JobKind if kind in kinds and kind not in self.kinds | self.beside]
        if strange:
            return f"was never taught {' or '.join(strange)}"
        if kinds and self.kinds.isdisjoint(kinds):
            return f"is no better with {' and '.join(_JOBS_OF[kind] for kind in JobKind if kind in kinds)} alone"
        return f"is good for up to {self.at_once} jobs at once, not for {jobs}" if jobs > self.at_once else ""


_JOBS_OF = {
    JobKind.PS: "jobs with parameter servers",
    JobKind.ASYNC: "asynchronous jobs",
    JobKind.ALLREDUCE: "all-reduce jobs",
}


class LearnedPolicy:
    """Allocates with a trained network; `load_weights` swaps it between two decisions.

    It decides for all jobs; `taught` is for those who ask for which it should, None if for all. The random numbers of a
    decision depend on the seed and the decision's index alone, so that a logged decision can be made again.
    """

    def __init__(
        self,
        spec: PolicySpec,
        weights: Weights,
        *,
        seed: int = 0,
        mode: ActingMode = ActingMode.GREEDY,
        explorer: JobAwareExploration | None = None,
        label: str = "dl2",
    ) -> None:
        self.spec = spec
        self.seed = seed
        self.mode = mode
        self.decision_index = 0
        self.taught: TaughtJobs | None = None
        self.inference_seconds: list[float] = []
        self._explorer = explorer if mode is ActingMode.SAMPLE else None
        self.name = label
        self._encoder = BatchEncoder(spec)
        self.network = ActingNetwork(spec, weights)

    @property
    def choice(self) -> GroupChoice | None:
        """Which groups of decisions are drawn to learn from; none."""
        return None

    @property
    def draws(self) -> bool:
        """Whether actions are drawn, and not the best ones."""
        return self.mode is ActingMode.SAMPLE

    @property
    def explores_as_usual(self) -> bool:
        """Whether nobody's own explorer proposes actions."""
        return self._explorer is None or type(self._explorer) is JobAwareExploration

    @property
    def exploration(self) -> float:
        """Probability of a lopsided job's repair in place of the action that is drawn."""
        return 0.0 if self._explorer is None else self._explorer.epsilon

    def load_weights(self, weights: Weights) -> None:
        """Act with other weights from the next decision on.

        Raises:
            SpecMismatch: they are not of this policy's spec.
        """
        self.network = ActingNetwork(self.spec, weights)

    def decide(self, state: ClusterState, trigger: Trigger) -> Decision:
        """Allocate tasks to the jobs of `state`, from zero."""
        del trigger
        return self._decide(state, None)

    def decide_recorded(self, state: ClusterState, trigger: Trigger) -> tuple[Decision, DecisionSamples]:
        """Decide, and keep what a learner needs of every choice."""
        del trigger
        record = _Record(self.spec)
        decision = self._decide(state, record)
        return decision, record.samples()

    def draw_decision(self, state: ClusterState, draw: int) -> tuple[Decision, DecisionSamples]:
        """Draw the decision of this number, 1 or more, that could be taken next; none is taken."""
        record = _Record(self.spec)
        generator = np.random.default_rng((self.seed, self.decision_index, draw))
        return self._allocate(state, generator, record), record.samples()

    def observe(self, progress: Sequence[Progress]) -> None:
        """The network has no beliefs."""

    def _decide(self, state: ClusterState, record: _Record | None) -> Decision:
        generator = np.random.default_rng((self.seed, self.decision_index))
        self.decision_index += 1
        return self._allocate(state, generator, record)

    def _allocate(self, state: ClusterState, generator: np.random.Generator, record: _Record | None) -> Decision:
        allocation: dict[str, Allocation] = {}
        for batch in batches_of(state, self._encoder):
            self._fill(batch, generator, record, len(allocation))
            allocation.update(batch.allocation())
        return Decision(allocation)

    def _fill(self, batch: JobBatch, generator: np.random.Generator, record: _Record | None, first_job: int) -> None:
        """Give to one batch until void is chosen or nothing more can be given; the forced last void is no choice."""
        if batch.only_void:
            return
        began = time.perf_counter()
        self.network.start(batch.features_F)
        while True:
            logits_A = self.network.logits()
            if not np.isfinite(logits_A).all():
                raise FloatingPointError("the network's logits are not finite")
            if self.mode is ActingMode.GREEDY:
                index = int(np.where(batch.mask_A, logits_A, -np.inf).argmax())
                probability = 1.0
            else:
                index, probability = self._draw(logits_A, batch, generator)
            if record is not None:
                record.add(batch, index, probability, first_job)
            if index != batch.void:
                self.network.change(*batch.grant(index))
            now = time.perf_counter()
            self.inference_seconds.append(now - began)
            began = now
            if index == batch.void or batch.only_void:
                return

    def _draw(
        self, logits_A: NDArray[np.float32], batch: JobBatch, generator: np.random.Generator
    ) -> tuple[int, float]:
        """Draw from μ = (1 − ε)·π + ε·1[the explorer's proposal]; μ = π where there is none."""
        masked_A = np.where(batch.mask_A, logits_A.astype(np.float64), -np.inf)
        weights_A = np.exp(masked_A - masked_A.max())
        probabilities_A = weights_A / weights_A.sum()
        proposal = self._explorer.propose(batch) if self._explorer is not None else None
        if proposal is not None and self._explorer is not None:
            probabilities_A *= 1.0 - self._explorer.epsilon
            probabilities_A[proposal] += self._explorer.epsilon
        cumulative_A = probabilities_A.cumsum()
        index = int(cumulative_A.searchsorted(generator.random() * cumulative_A[-1], side="right"))
        return index, float(probabilities_A[index])


def build_dl2(context: PolicyContext) -> LearnedPolicy:
    """Build the policy registered as `dl2`, as it ships."""
    content = shipped_file(DL2)
    return policy_of(content, context.seed, DL2)


def policy_of(content: PolicyFile, seed: int, label: str) -> LearnedPolicy:
    """The policy of a file.

    Raises:
        PolicyFileError: the file holds a policy of another kind, or its card says nothing that can be read.
    """
    policy = LearnedPolicy(content.network_spec, content.weights, seed=seed, label=label)
    policy.taught = TaughtJobs.of_card(content.card, label)
    return policy


class _Record:
    """Collects a decision's choices in arrays that grow by doubling."""

    def __init__(self, spec: PolicySpec) -> None:
        self._count = 0
        self._features = np.empty((64, spec.feature_count), dtype=np.float32)
        self._masks = np.empty((64, spec.action_count), dtype=np.bool_)
        self._actions: list[int] = []
        self._behaviour: list[float] = []
        self._jobs: list[int] = []

    def add(self, batch: JobBatch, index: int, probability: float, first_job: int) -> None:
        if self._count == len(self._features):
            self._features = np.concatenate((self._features, np.empty_like(self._features)))
            self._masks = np.concatenate((self._masks, np.empty_like(self._masks)))
        self._features[self._count] = batch.features_F
        self._masks[self._count] = batch.mask_A
        self._actions.append(index)
        self._behaviour.append(probability)
        self._jobs.append(-1 if index == batch.void else first_job + index // GRANT_KINDS)
        self._count += 1

    def samples(self) -> DecisionSamples:
        return DecisionSamples(
            self._features[: self._count].copy(),
            self._masks[: self._count].copy(),
            np.array(self._actions, dtype=np.int64),
            np.array(self._behaviour, dtype=np.float64),
            np.array(self._jobs, dtype=np.int64),
        )
