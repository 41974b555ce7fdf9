"""`policy-net train`: a warm start by imitation, then actor-critic in simulation, into a policy file."""

from __future__ import annotations

import dataclasses
import itertools
import math
import time
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

import policy_net.baselines  # noqa: F401  (registers the names that can be imitated)
from policy_net.command_options import Debug, WorldOptions, warn_of_malformed_rows, with_world_options
from policy_net.domain import PlacementEffect, PolicyContext, SpeedModel
from policy_net.errors import BadInput
from policy_net.exchange.policy_file import PolicyFile, check_writable, digest_of, read_policy_file, write_policy_file
from policy_net.exchange.set_spec import SET
from policy_net.exchange.spec import OTHER_TYPE, PolicySpec, Weights
from policy_net.learning.episodes import Episode, endless_episodes
from policy_net.learning.imitation import demonstrate, imitate, watch
from policy_net.learning.offline import OfflineSettings, train_offline
from policy_net.learning.set_command import SetTraining
from policy_net.learning.settings import ActorCriticSettings, ImitationSettings, RewardKind
from policy_net.network import initial_weights
from policy_net.policy import build_policy
from policy_net.simulation.catalogue import MODEL_NAMES

DEFAULT_JOBS_PER_BATCH = 20
"""Source: DL2 §6.1 (J = 20)."""

DEMONSTRATED_EPISODES = 20
"""Workloads watched under the teacher; with 8 the warm start is 2% further from its teacher."""


@with_world_options
def train(
    workload: Annotated[
        list[str],
        typer.Option("--workload", metavar="SRC", help="What to train on, as for replay (repeatable; used in turns)."),
    ],
    out: Annotated[Path, typer.Option("--out", metavar="FILE", help="Where the policy file goes.")],
    world: WorldOptions,
    policy: Annotated[str, typer.Option("--policy", help="The kind of policy to train: dl2 or set.")] = "dl2",
    steps: Annotated[
        int,
        typer.Option(
            "--steps", min=0, help="Actor-critic updates, of a set policy generations; 0 leaves the start as it is."
        ),
    ] = 0,
    teacher: Annotated[
        str | None, typer.Option("--imitate", metavar="NAME", help="Warm start: imitate this scheduler first.")
    ] = None,
    imitation_steps: Annotated[int, typer.Option("--imitation-steps", min=1, help="Mini-batches of imitation.")] = 4000,
    jobs_per_batch: Annotated[
        int | None,
        typer.Option("--jobs-per-batch", min=1, max=1024, help="J, the jobs one inference sees; 20 unless given."),
    ] = None,
    start: Annotated[
        Path | None, typer.Option("--from", metavar="FILE", help="Go on from this policy file instead of from nothing.")
    ] = None,
    reward: Annotated[RewardKind, typer.Option("--reward", help="What is climbed.")] = RewardKind.SLOT_UTILITY,
    learning_rate: Annotated[float, typer.Option("--learning-rate", min=0.0, help="Adam's, of the actor-critic.")] = (
        OfflineSettings().learning_rate
    ),
    max_seconds: Annotated[
        float | None, typer.Option("--max-seconds", min=0.0, help="Stop the actor-critic after so long.")
    ] = None,
    debug: Debug = False,
) -> None:
    """Train a policy in simulation and write it, with a card that says how it came to be."""
    del debug  # the error boundary looks for the flag itself
    if policy not in ("dl2", SET):
        raise BadInput(f"--policy {policy}: use dl2 or {SET}")
    for option, value in (("learning-rate", learning_rate), ("max-seconds", max_seconds)):
        if value is not None and not math.isfinite(value):
            raise BadInput(f"--{option} is {value}; use a finite number")
    truth, effect = world.speeds(), world.placement_effect()

    def load(source: str, round_number: int) -> Episode:
        moved = dataclasses.replace(world, seed=world.seed + round_number)
        loaded = moved.workload(source, truth)
        return loaded, moved.environment(loaded)

    for source in workload:
        warn_of_malformed_rows(load(source, 0)[0])  # bad input is said before any work is done
    check_writable(out)
    if policy == SET:
        given = {"imitate": teacher, "jobs-per-batch": jobs_per_batch, "from": start}
        for option in (name for name, value in given.items() if value is not None):
            raise BadInput(f"--{option} is for dl2 policies; leave it out with --policy {SET}")
        training = SetTraining(workload, load, truth, effect, world.seed, steps, max_seconds)
        write_policy_file(out, training.run(Console(stderr=True)))
        return
    spec, weights, parent = _beginning(start, jobs_per_batch, world.seed)
    console = Console(stderr=True)
    card: dict[str, Any] = {"workloads": workload, "seed": world.seed, "parent": parent}
    with Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.fields[figure]}"),
        TimeRemainingColumn(),
        console=console,
        disable=not console.is_terminal,
    ) as progress:
        if teacher is not None:
            weights = _warm_start(
                teacher, weights, spec, workload, load, truth, effect, imitation_steps, world.seed, progress
            )
            card |= {"imitated": teacher, "imitation_steps": imitation_steps}
        if steps:
            settings = ActorCriticSettings(reward=reward)
            offline = OfflineSettings(learning_rate=learning_rate, seed=world.seed)
            task = progress.add_task("actor-critic", total=steps, figure="")
            deadline = None if max_seconds is None else time.monotonic() + max_seconds
            taken = itertools.count(1)
            updates = 0

            def on_step(done: int, _: Weights) -> None:
                nonlocal updates
                updates = done
                progress.update(task, completed=next(taken))

            diverged = f"--learning-rate {learning_rate:g}: the weights became infinite; use a smaller one"
            try:
                with np.errstate(over="ignore", invalid="ignore"):  # what comes of it is said in one line
                    weights = train_offline(
                        weights,
                        spec,
                        endless_episodes(workload, load),
                        truth,
                        settings,
                        offline,
                        steps=steps,
                        placement_effect=effect,
                        stop=lambda: deadline is not None and time.monotonic() > deadline,
                        on_step=on_step,
                    )
            except FloatingPointError as error:
                raise BadInput(diverged) from error
            if not np.isfinite(weights).all():
                raise BadInput(diverged)
            card |= {"updates": updates, "learning_rate": learning_rate, "reward": reward.value}
    write_policy_file(out, PolicyFile(spec, weights, card))
    console.print(f"{out}: {spec.policy}, {spec.parameter_count} parameters")


def _beginning(start: Path | None, jobs_per_batch: int | None, seed: int) -> tuple[PolicySpec, Weights, str | None]:
    if start is None:
        spec = PolicySpec(jobs_per_batch=jobs_per_batch or DEFAULT_JOBS_PER_BATCH, job_types=(OTHER_TYPE, *MODEL_NAMES))
        return spec, initial_weights(spec, seed), None
    content = read_policy_file(start)
    spec = content.network_spec
    if jobs_per_batch not in (None, spec.jobs_per_batch):
        raise BadInput(f"--jobs-per-batch {jobs_per_batch}: {start} was made for {spec.jobs_per_batch}; leave it out")
    return spec, content.weights, digest_of(content.to_bytes())


def _warm_start(
    teacher: str,
    weights: Weights,
    spec: PolicySpec,
    sources: list[str],
    load: Any,
    truth: SpeedModel,
    effect: PlacementEffect | None,
    steps: int,
    seed: int,
    progress: Progress,
) -> Weights:
    settings = ImitationSettings()
    episodes = endless_episodes(sources, load)
    watching = progress.add_task(f"watching {teacher}", total=DEMONSTRATED_EPISODES, figure="")
    seen = []
    for number in range(DEMONSTRATED_EPISODES):
        scheduler = build_policy(teacher, PolicyContext(seed=seed + number, true_speeds=truth))
        loaded, environment = next(episodes)
        seen += watch(scheduler, loaded, environment, truth, effect)
        progress.advance(watching)
    demonstrations = demonstrate(seen, spec, settings, seed)
    imitating = progress.add_task(f"imitating {teacher}", total=steps, figure="")

    def on_step(_: int, loss: float) -> None:
        progress.update(imitating, advance=1, figure=f"cross-entropy {loss:.3f}")

    return imitate(weights, spec, demonstrations, settings, steps=steps, seed=seed, on_step=on_step)
