"""`python -m benchmarks.dl2_fleet`: DL2's network learned by a fleet, a push a lesson, at the learner's own rules.

Each cluster has machines and a mix of types of its own, and teaches by windows of generated jobs (`window_gradient`,
what an agent's lesson is: what a few local steps came to) at the head of the round before; `global_learner`'s judging,
weighing, aggregating and stepping take them, in one process. `--local 0` sends one gradient instead. `--alone` has
no learner: the same lessons in one place, by the steps of a training. What is told is the log ratio of mean JCT to
DRF's on workloads of their own, of all clusters' mixes, by the number of lessons.
"""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

import policy_net.baselines  # noqa: F401  (registers the schedulers)
from benchmarks.command import parser_of, show
from benchmarks.learning.fleet import ATTACKS, attacked
from global_learner.aggregation.settings import REPLAYED_RATE, AggregationSettings, OptimizerSettings
from global_learner.settings import DL2_AVERAGE_DECAY
from global_learner.updates.simulated_fleet import SimulatedHead
from policy_net.dl2.group import DecisionGroup
from policy_net.dl2.network import initial_weights
from policy_net.dl2.policy import LearnedPolicy
from policy_net.domain import PolicyContext
from policy_net.exchange.policy_file import PolicyFile
from policy_net.exchange.shipped import shipped_file
from policy_net.exchange.spec import DL2, OTHER_TYPE, PolicySpec, Weights, split_weights
from policy_net.laboratory.catalogue import MODEL_NAMES
from policy_net.laboratory.simulation.environment import Environment
from policy_net.laboratory.speeds.speed import default_speeds
from policy_net.laboratory.training.group_training import groups_of_window, mean_jct_seconds, window_gradient
from policy_net.laboratory.training.offline import Episode
from policy_net.laboratory.training.twin_windows import TwinWindow
from policy_net.laboratory.workloads.sources import load_workload
from policy_net.learning.gradient import GradientResult, NotEnoughSamples
from policy_net.learning.group_gradient import GroupGradients, LocalSteps, advantages_of
from policy_net.learning.settings import GroupSettings
from policy_net.policy import build_policy

SMALL = PolicySpec(
    jobs_per_batch=10, type_columns=9, job_types=(OTHER_TYPE, *MODEL_NAMES), hidden=(64, 64), critic=False
)
NODES = (6, 8, 10)
FIRST_VALIDATION = 5_000_000
LOCAL_RATE = 1e-3
"""Of Adam, where steps are local."""
LAST_RATE_SHARE = 0.1
LESSON = GroupSettings(micro_actions=20_000, own_share=0.0, batch_samples=512)


@dataclass(frozen=True, slots=True)
class TaughtCluster:
    """A cluster's machines and types, and the windows of its past.

    Attributes:
        types: of its jobs; all, or some of them.
        jobs: of a window.
    """

    number: int
    types: tuple[str, ...]
    jobs: int

    def episode(self, number: int) -> Episode:
        """A workload of its own, by a number."""
        seed = 10_000 * self.number + number
        text = f"dl2:jobs={self.jobs},arrivals=google,sizes=varied,seed={seed},mix={'+'.join(self.types)}"
        return load_workload(text), Environment(nodes=NODES[self.number % len(NODES)], speed_noise=0.27, seed=number)

    def windows(self, seed: int) -> Iterator[TwinWindow]:
        """Windows to learn from, without end."""
        number = 1_000_000 * seed
        while True:
            yield TwinWindow(*self.episode(number), default_speeds())
            number += 1


def clusters_of(count: int, jobs: int, mixes: str) -> list[TaughtCluster]:
    """Clusters: of `alike` each has all types, of `apart` each three, of `one` the last alone has the last type."""
    found = []
    for number in range(count):
        types = MODEL_NAMES
        if mixes == "apart":
            types = tuple(MODEL_NAMES[(2 * number + place) % len(MODEL_NAMES)] for place in range(3))
        elif mixes == "one":
            types = MODEL_NAMES[-2:] if number == count - 1 else MODEL_NAMES[:-1]
        found.append(TaughtCluster(number, types, jobs))
    return found


class Judge:
    """Log ratio of mean JCT to DRF's, on workloads that nobody learns from."""

    def __init__(self, spec: PolicySpec, clusters: list[TaughtCluster], each: int) -> None:
        self._spec = spec
        self._of = [[one.episode(FIRST_VALIDATION + number) for number in range(each)] for one in clusters]
        drf = build_policy("drf", PolicyContext())
        self._drf = [[self._seconds(drf, episode) for episode in of] for of in self._of]

    @staticmethod
    def _seconds(policy: Any, episode: Episode) -> float:
        return mean_jct_seconds(policy, [episode], default_speeds())

    def of(self, weights: Weights, only: slice = slice(None)) -> float:
        """The mean over workloads of some clusters, of all unless said."""
        policy = LearnedPolicy(self._spec, weights)
        ratios = [
            math.log(self._seconds(policy, episode) / drf)
            for of, drfs in zip(self._of[only], self._drf[only], strict=True)
            for episode, drf in zip(of, drfs, strict=True)
        ]
        return float(np.mean(ratios))


def one_gradient(groups: list[DecisionGroup], head: PolicyFile) -> GradientResult:
    """The gradient of all actions at the head, in the place of local steps."""
    batch = advantages_of(groups, 0.0)
    gradient, _ = GroupGradients(head.network_spec).gradient(head.weights, batch, np.arange(len(batch)))
    return GradientResult(gradient, len(batch), float(len(batch)), {})


def main() -> int:
    """Entry point; returns the exit code."""
    parser = parser_of("dl2_fleet", __doc__)
    parser.add_argument("--clusters", type=int, default=8)
    parser.add_argument("--mixes", choices=("alike", "apart", "one"), default="apart")
    parser.add_argument("--jobs", type=int, default=24, help="of a window")
    parser.add_argument("--draws", type=int, default=20)
    parser.add_argument("--lessons", type=int, default=800)
    parser.add_argument("--every", type=int, default=200, help="lessons between two judgements")
    parser.add_argument("--validated", type=int, default=2, help="workloads of each cluster")
    parser.add_argument("--network", choices=("small", "shipped"), default="small", help="small begins at random")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--learning-rate", type=float, default=REPLAYED_RATE, help="the learner's own")
    parser.add_argument("--decay-steps", type=int)
    parser.add_argument("--average", type=float, default=DL2_AVERAGE_DECAY, help="the learner's own for lessons")
    parser.add_argument("--trust-radius", type=float, default=0.0)
    parser.add_argument("--mode", default="async", help="of aggregation")
    parser.add_argument("--outvoted", action="store_true", help="robust without the say of a type's only cluster")
    parser.add_argument("--bad", choices=ATTACKS, help="what the first cluster sends in place of its push")
    parser.add_argument("--local", type=int, default=2, help="epochs of local steps in a push; 0: one gradient")
    parser.add_argument("--alone", action="store_true", help="the same lessons in one place, without a learner")
    asked = parser.parse_args()
    if asked.draws < 2:
        parser.error(f"--draws {asked.draws}: one draw has nothing to be compared with; take 2 or more")
    run = Run(asked)
    run.go()
    published = [point["published"] for point in run.curve]
    fifth = published[-max(1, len(published) // 5) :]
    result = {
        "seed": asked.seed,
        "clusters": asked.clusters,
        "best": min(published),
        "last": published[-1],
        "drift_over_best": round(math.expm1(float(np.mean(fifth)) - min(published)), 4),
        "curve": run.curve,
    }
    show(result, asked.output, "curve", ("lessons", "head", "published", "cpu_seconds"))
    return 0


class Run:
    """One fleet, or the same lessons alone."""

    def __init__(self, asked: Any) -> None:
        self._asked = asked
        self._clusters = clusters_of(asked.clusters, asked.jobs, asked.mixes)
        small = PolicyFile(SMALL, initial_weights(SMALL, asked.seed))
        self._start = shipped_file(DL2) if asked.network == "shipped" else small
        self._spec = self._start.network_spec
        self._generator = np.random.default_rng(asked.seed)
        self._settings = LESSON.model_copy(update={"draws": asked.draws, "epochs": asked.local or 1})
        self._judge = Judge(self._spec, self._clusters, asked.validated)
        optimizer = OptimizerSettings(
            learning_rate=asked.learning_rate, decay_steps=asked.decay_steps, trust_radius=asked.trust_radius
        )
        say = {"types_of_one": False} if asked.outvoted else {}
        cohort = {"mode": asked.mode, "buffer": asked.clusters}
        aggregation = AggregationSettings.model_validate({**cohort, **say})
        self._learner = SimulatedHead(self._start, optimizer, aggregation, average_decay=asked.average)
        self._alone = LocalSteps(self._spec, self._start.weights, asked.seed)
        self._windows = [one.windows(asked.seed) for one in self._clusters]
        self._began = time.process_time()
        self._entropy: float | None = None
        self.curve: list[dict[str, Any]] = []

    @property
    def _weights(self) -> Weights:
        return self._alone.weights if self._asked.alone else self._learner.head.weights

    def go(self) -> None:
        """All lessons, judged on the way."""
        done, last, asked = 0, -1, self._asked
        while done < asked.lessons:
            if done // asked.every != last:
                last = done // asked.every
                self._note(done)
            self._round(done / asked.lessons)
            done += len(self._windows)
        self._note(done)

    def _round(self, share: float) -> None:
        """A lesson of each cluster at one head."""
        asked = self._asked
        head, base = PolicyFile(self._spec, self._weights.copy()), self._learner.head.step
        drawn: list[DecisionGroup] = []
        for place, windows in enumerate(self._windows):
            try:
                if asked.alone:
                    drawn += groups_of_window(head, next(windows), self._settings, self._generator)
                    continue
                found = self._lesson(head, next(windows))
            except NotEnoughSamples:
                continue
            if place == 0 and asked.bad:
                found = replace(found, gradient=attacked(found.gradient, asked.bad, self._generator))
            self._learner.offer(f"cluster-{place}", base, found)
        if drawn:
            rate = LOCAL_RATE * LAST_RATE_SHARE**share
            self._entropy = self._alone.take(advantages_of(drawn, 0.0), epochs=2, batch_samples=512, learning_rate=rate)

    def _lesson(self, head: PolicyFile, window: TwinWindow) -> GradientResult:
        if not self._asked.local:
            return one_gradient(groups_of_window(head, window, self._settings, self._generator), head)
        found = window_gradient(head, window, self._settings, self._generator)
        self._entropy = found.statistics["entropy"]
        return found

    def _slope_of_its_type(self) -> float:
        """Norm of what the learner remembers of gradients, in robust modes the last one, for that type's inputs."""
        layer = split_weights(self._learner.head.state.first_moment, self._spec)["actor.0.weight"]
        columns = layer.reshape(len(layer), self._spec.jobs_per_batch, -1)
        return float(np.linalg.norm(columns[:, :, self._spec.job_types.index(MODEL_NAMES[-1])]))

    def _note(self, done: int) -> None:
        published = self._alone.weights if self._asked.alone else self._learner.head.publishable
        cpu = time.process_time() - self._began
        point = {
            "lessons": done,
            "head": round(self._judge.of(self._weights), 4),
            "published": round(self._judge.of(published), 4),
            "cpu_seconds": round(cpu, 1),
            "entropy": self._entropy and round(self._entropy, 3),
            "moved": round(float(np.sqrt(np.mean(np.square(self._weights - self._start.weights)))), 5),
        }
        if self._asked.mixes == "one":
            point["last_cluster"] = round(self._judge.of(published, slice(-1, None)), 4)
            point["slope_of_its_type"] = round(self._slope_of_its_type(), 6)
        self.curve.append(point)
        print(point, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
