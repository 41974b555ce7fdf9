"""Tasks of a reproduction (warm start, learning from rewards, judging), and their worlds.

A task says everything that its result follows from, so that it comes to the same in any process; it leaves files in the
folder, of which the last says that it is done. What fails by itself is a result too.

Jobs that judge are made of generator seeds that nothing else uses (docs/evaluation.md); those of a training follow from
its seed, and in a fleet from the cluster.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

from foundation.files import write_whole
from policy_net.dl2.network import initial_weights
from policy_net.dl2.policy import LearnedPolicy
from policy_net.domain import PolicyContext, SpeedModel
from policy_net.errors import BadInput, NoProgress
from policy_net.exchange.policy_file import PolicyFile, read_policy_file, write_policy_file
from policy_net.exchange.spec import Weights
from policy_net.laboratory.catalogue import MODEL_NAMES, SLOT_SECONDS
from policy_net.laboratory.reproduction.experiment import Measure, PolicyTraining, Scale, Truth, World, digest_of_json
from policy_net.laboratory.simulation.environment import Environment
from policy_net.laboratory.simulation.replay import ReplayResult, replay
from policy_net.laboratory.speeds.speed import default_speeds
from policy_net.laboratory.training import Dl2Method
from policy_net.laboratory.training.group_training import GroupLearner
from policy_net.laboratory.training.imitation import demonstrate, imitate, watch_in_turns
from policy_net.laboratory.training.offline import (
    FAILURES,
    Episode,
    SimulatedLearner,
    check_finite,
    train_offline,
    until_stuck,
)
from policy_net.laboratory.training.settings import Dl2Settings
from policy_net.laboratory.workloads.generator import GeneratorSettings, generate
from policy_net.laboratory.workloads.workload import Estimates, with_estimates
from policy_net.policy import SchedulerPolicy, build_policy
from policy_net.throughput.parametric import MeasuredFit, SpeedPoint

FIRST_JUDGING_SEED = 9_800_000
"""Of the generator; from here on."""
FIRST_JUDGING_DRAW = 2_000
"""Of noise and of wrong declarations."""
TRAINING_SEEDS = 9_000_000
DRAW_SEEDS = 1_000
APART = 10_000
"""Generator seeds of one training, and of one of its clusters."""
IMITATED_FROM = 5_000
"""Workloads that are demonstrated come from here on, so that rewards are not learned from the same."""
PROFILED_COUNTS = (1, 2, 4)
"""Parameter servers and workers of the short runs that an analytical model is fitted to."""
FLEET = "global_learner.updates.simulated_fleet"
"""Loaded by its name where clusters learn together: the learner is no part of the laboratory."""


def judging_episode(world: World, scale: Scale, number: int) -> Episode:
    """The same workload for the same number, in this world."""
    return _episode(world, scale, FIRST_JUDGING_SEED + number, FIRST_JUDGING_DRAW + number)


def training_episodes(
    world: World, scale: Scale, seed: int, first: int = 0, unlocked: tuple[str, ...] = (), cluster: int = 0
) -> Iterator[Episode]:
    """Workloads to learn from, without end, of the models that are unlocked; of the world's where none are named."""
    for number in itertools.count(first):
        of_training = ((seed * 64 + cluster) * APART + number) % TRAINING_SEEDS
        yield _episode(world, scale, of_training, number % DRAW_SEEDS, unlocked)


@cache
def speeds_of(truth: Truth) -> SpeedModel:
    """The speeds at which jobs train."""
    simulated = default_speeds()
    if truth is Truth.SIMULATED:
        return simulated
    points: Mapping[str, list[SpeedPoint]] = {
        name: [
            SpeedPoint(ps, workers, simulated.samples_per_second(name, ps, workers))
            for ps in PROFILED_COUNTS
            for workers in PROFILED_COUNTS
        ]
        for name in MODEL_NAMES
    }
    return MeasuredFit(points, "the analytical model")


def _episode(world: World, scale: Scale, seed: int, draw: int, unlocked: tuple[str, ...] = ()) -> Episode:
    mix = dict.fromkeys(unlocked or world.models or MODEL_NAMES, 1.0)
    workload = generate(GeneratorSettings(jobs=scale.jobs, arrivals=world.arrivals, seed=seed, mix=mix))
    declared = with_estimates(workload, Estimates(epoch_error=world.epoch_error), draw)
    return declared, Environment(nodes=scale.nodes, job_noise=world.job_noise, seed=draw)


@dataclass(frozen=True)
class Imitating:
    """The warm start of a training under one seed."""

    folder: Path
    training: PolicyTraining
    scale: Scale
    seed: int

    @property
    def name(self) -> str:
        """The same for all trainings that begin alike."""
        training, settings = self.training, self.training.settings
        scale = asdict(self.scale)
        of_scale = {key: scale[key] for key in ("jobs", "nodes", "imitation_steps", "demonstrated", "micro_states")}
        content = {
            "teacher": training.teacher,
            "imitation": training.imitation,
            "settings": settings.imitation.model_dump(mode="json"),
            "spec": settings.spec(MODEL_NAMES).digest,
            "world": asdict(training.world),
            "unlocked": training.unlocked[:1],
            "scale": of_scale,
            "seed": self.seed,
        }
        return f"imitated-{digest_of_json(content)}"

    def do(self) -> None:
        """Watch, demonstrate, imitate."""
        training, settings, scale = self.training, self.training.settings, self.scale
        spec = settings.spec(MODEL_NAMES)
        weights = initial_weights(spec, self.seed)
        if training.teacher is not None:
            unlocked = training.unlocked[0] if training.unlocked else ()
            episodes = training_episodes(training.world, scale, self.seed, IMITATED_FROM, unlocked)
            truth = speeds_of(Truth.SIMULATED)
            seen = watch_in_turns(training.teacher, episodes, scale.demonstrated, truth, seed=self.seed)
            imitation = settings.imitation.model_copy(update={"micro_states": scale.micro_states})
            shown = demonstrate(seen, spec, imitation, self.seed)
            steps = max(1, round(training.imitation * scale.imitation_steps))
            weights = imitate(weights, spec, shown, imitation, steps=steps, seed=self.seed)
        write_policy_file(policy_path(self.folder, self.name, 0.0), PolicyFile(spec, weights))
        _finish(self.folder, self.name, {})


@dataclass(frozen=True)
class Learning:
    """Learning from rewards of a training under one seed; the policy is kept after these shares of the updates."""

    folder: Path
    training: PolicyTraining
    scale: Scale
    seed: int
    trained_shares: tuple[float, ...]

    @property
    def name(self) -> str:
        """The same for the same work."""
        scale = {key: value for key, value in asdict(self.scale).items() if key not in ("name", "seeds", "workloads")}
        content = [self.training.to_json(), scale, self.seed, self.trained_shares]
        return f"learned-{digest_of_json(content)}"

    @property
    def start(self) -> Imitating:
        """What it begins with."""
        return Imitating(self.folder, self.training, self.scale, self.seed)

    def do(self) -> None:
        """Learn, and keep the policies that are to be judged."""
        start = read_policy_file(policy_path(self.folder, self.start.name, 0.0))
        updates = self._updates
        judged_after = [(max(1, round(share * updates)), share) for share in self.trained_shares]
        done = 0

        def on_step(step: int, weights: Weights) -> None:
            nonlocal done
            done = step
            for share in [share for at, share in judged_after if at == step]:
                check_finite(weights)
                write_policy_file(policy_path(self.folder, self.name, share), PolicyFile(start.spec, weights.copy()))

        content = {}
        try:
            with np.errstate(over="ignore", invalid="ignore"):  # what comes of it is said in the result
                if self._in_groups:
                    self._learn_in_groups(start, lambda: done, on_step)
                elif self.training.clusters:
                    self._learn_together(start, on_step)
                else:
                    self._learn_alone(start, lambda: done, on_step)
        except tuple(FAILURES) as error:
            content = {"failure": FAILURES[type(error)]}
        _finish(self.folder, self.name, content)

    def _learn_alone(self, start: PolicyFile, done: Callable[[], int], on_step: Callable[[int, Weights], None]) -> None:
        updates = self.scale.updates
        train_offline(
            start.weights,
            start.network_spec,
            self._episodes(done),
            speeds_of(self.training.truth),
            self._settings,
            self.seed,
            steps=updates,
            stop=until_stuck(updates),
            on_step=on_step,
        )

    def _learn_in_groups(
        self, start: PolicyFile, done: Callable[[], int], on_step: Callable[[int, Weights], None]
    ) -> None:
        clusters = self.training.clusters
        learner = GroupLearner(
            start.network_spec,
            start.weights,
            self._in_turns(clusters) if clusters else self._episodes(done),
            speeds_of(self.training.truth),
            self._settings.groups,
            self.seed,
        )
        for number in range(self._updates):
            learner.update(number / self._updates)
            on_step(number + 1, learner.weights)

    def _learn_together(self, start: PolicyFile, on_step: Callable[[int, Weights], None]) -> None:
        learners = [
            SimulatedLearner(
                start.network_spec,
                training_episodes(self.training.world, self.scale, self.seed, cluster=cluster),
                speeds_of(self.training.truth),
                self._settings,
                self.seed * 64 + cluster,
            )
            for cluster in range(self.training.clusters)
        ]
        import_module(FLEET).train_fleet(start, learners, self._settings.learning_rate, self.scale.updates, on_step)

    def _episodes(self, done: Callable[[], int]) -> Iterator[Episode]:
        """One workload after another, of the models that there are when it begins."""
        training, unlocked = self.training, self.training.unlocked
        for number in itertools.count():
            part = unlocked[min(len(unlocked) * done() // self._updates, len(unlocked) - 1)] if unlocked else ()
            yield next(training_episodes(training.world, self.scale, self.seed, number, part))

    def _in_turns(self, clusters: int) -> Iterator[Episode]:
        """Workloads of so many clusters, one of each after the other."""
        each = [
            training_episodes(self.training.world, self.scale, self.seed, cluster=cluster)
            for cluster in range(clusters)
        ]
        while True:
            yield from map(next, each)

    @property
    def _in_groups(self) -> bool:
        return self.training.settings.method is Dl2Method.GROUPS

    @property
    def _updates(self) -> int:
        return self.scale.group_updates if self._in_groups else self.scale.updates

    @property
    def _settings(self) -> Dl2Settings:
        settings, rate = self.training.settings, self.scale.learning_rate
        return settings if rate is None else settings.model_copy(update={"learning_rate": rate})


@dataclass(frozen=True)
class Judging:
    """Replays of the judging workloads under a scheduler, or a training's policy after a share of its updates."""

    folder: Path
    policy: str | Imitating | Learning
    trained_share: float
    world: World
    scale: Scale
    timeline_of: str = ""

    @property
    def name(self) -> str:
        """The same for the same work."""
        policy = self.policy if isinstance(self.policy, str) else self.policy.name
        sizes = [self.scale.workloads, self.scale.jobs, self.scale.nodes]
        return f"judged-{digest_of_json([policy, self.trained_share, asdict(self.world), sizes, self.timeline_of])}"

    def do(self) -> None:
        """Replay every workload to its end."""
        if isinstance(self.policy, Learning) and (failure := result_of(self.folder, self.policy.name).get("failure")):
            return _finish(self.folder, self.name, {"failure": failure})
        try:
            runs = [self._replay(number) for number in range(self.scale.workloads)]
        except NoProgress:
            return _finish(self.folder, self.name, {"failure": FAILURES[NoProgress]})
        figures: dict[str, Any] = {measure: [] for measure in Measure}
        for run in runs:
            facts = run.to_json()
            figures[Measure.AVG_JCT].append(facts["avg_jct_seconds"] / SLOT_SECONDS)
            figures[Measure.MAKESPAN].append(facts["makespan_seconds"] / SLOT_SECONDS)
            figures[Measure.GPU_UTILIZATION].append(facts["gpu_utilization"])
        if self.timeline_of:
            shown = [history for run in runs for history in self._of_model(run)]
            figures[Measure.WORKERS_PER_PS] = [ratio for history in shown if (ratio := _workers_per_ps(history))]
            longest = max(shown, key=lambda history: history[-1][0] - history[0][0], default=[])
            figures["timeline"] = [[time / SLOT_SECONDS, workers, ps] for time, workers, ps in longest]
        return _finish(self.folder, self.name, figures)

    def _replay(self, number: int) -> ReplayResult:
        workload, environment = judging_episode(self.world, self.scale, number)
        truth = speeds_of(Truth.SIMULATED)
        return replay(workload, environment, self._policy(), truth, record_timeline=bool(self.timeline_of))

    def _policy(self) -> SchedulerPolicy:
        if isinstance(self.policy, str):
            return build_policy(self.policy, PolicyContext(true_speeds=speeds_of(Truth.SIMULATED)))
        content = read_policy_file(policy_path(self.folder, self.policy.name, self.trained_share))
        return LearnedPolicy(content.network_spec, content.weights)

    def _of_model(self, run: ReplayResult) -> list[list[tuple[float, int, int]]]:
        number = int(run.workload.rpartition("seed=")[2].split(",")[0]) - FIRST_JUDGING_SEED
        jobs = judging_episode(self.world, self.scale, number)[0].jobs
        return [run.timeline[job.job_id] for job in jobs if job.job_type == self.timeline_of]


Task = Imitating | Learning | Judging


def do_task(task: Task) -> None:
    """Do it; what a process of the runner does."""
    import torch  # noqa: PLC0415  (two thirds of every program's start)

    import policy_net.baselines  # noqa: PLC0415, F401  (registers the schedulers)

    torch.set_num_threads(1)  # sums come out the same whatever else the machine does
    task.do()


def is_done(task: Task) -> bool:
    """Whether an earlier run has done it."""
    return _result_path(task.folder, task.name).exists()


def result_of(folder: Path, name: str) -> dict[str, Any]:
    """What a task that is done came to."""
    path = _result_path(folder, name)
    try:
        content: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise BadInput(f"{path}: is damaged; remove it, and what it came to is worked out again") from error
    return content


def policy_path(folder: Path, name: str, trained_share: float) -> Path:
    """Where a trained policy lies."""
    return folder / f"{name}-{round(trained_share * 1000):04d}.safetensors"


def _result_path(folder: Path, name: str) -> Path:
    return folder / f"{name}.json"


def _finish(folder: Path, name: str, content: dict[str, Any]) -> None:
    write_whole(_result_path(folder, name), json.dumps(content, sort_keys=True) + "\n")  # durable: hours of work


def _workers_per_ps(history: list[tuple[float, int, int]]) -> float | None:
    """Mean workers over mean parameter servers of a job, over the time in which it holds any."""
    workers_seconds = ps_seconds = 0.0
    for (begin, workers, ps), (end, _, _) in itertools.pairwise(history):
        workers_seconds += workers * (end - begin)
        ps_seconds += ps * (end - begin)
    return workers_seconds / ps_seconds if ps_seconds else None
