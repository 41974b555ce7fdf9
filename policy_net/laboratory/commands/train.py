"""Command `policy-net train`: a warm start by imitation, then actor-critic in simulation, into a policy file.

What trains is loaded when something is trained: help and refusals of what was typed wait for none of it.
"""

from __future__ import annotations

import dataclasses
import math
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

import policy_net.baselines
import policy_net.set_policy  # noqa: F401  (both register names that can be imitated)
from foundation.command_line import Debug
from foundation.option_groups import with_option_groups
from policy_net.domain import RewardKind
from policy_net.errors import BadInput
from policy_net.laboratory.commands.world_options import WorldOptions, warn_of_malformed_rows
from policy_net.laboratory.training import OFFLINE_LEARNING_RATE
from policy_net.policy import policy_names

if TYPE_CHECKING:
    from policy_net.laboratory.training.offline import Episode


@with_option_groups
def train(
    out: Annotated[Path, typer.Option("--out", metavar="FILE", help="Where the policy file goes.")],
    world: WorldOptions,
    workload: Annotated[
        list[str] | None,
        typer.Option(
            "--workload",
            metavar="SRC",
            help="What to train on, as for replay (repeatable; used in turns). Only a log can be imitated without.",
        ),
    ] = None,
    policy: Annotated[str, typer.Option("--policy", help="The kind of policy to train: dl2 or set.")] = "dl2",
    steps: Annotated[
        int,
        typer.Option(
            "--steps", min=0, help="Actor-critic updates, of a set policy generations; 0 leaves the start as it is."
        ),
    ] = 0,
    teacher: Annotated[
        str | None,
        typer.Option(
            "--imitate",
            metavar="NAME|FILE",
            help="Warm start: imitate this scheduler first, or the decisions in this log.",
        ),
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
        OFFLINE_LEARNING_RATE
    ),
    max_seconds: Annotated[
        float | None, typer.Option("--max-seconds", min=0.0, help="Stop the actor-critic after so long.")
    ] = None,
    debug: Debug = False,
) -> None:
    """Train a policy in simulation and write it, with a card that says how it came to be."""
    del debug  # the error boundary looks for the flag itself
    from policy_net.exchange.spec import SET  # noqa: PLC0415

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

    log = None if teacher is None or teacher in policy_names() else _log_of(teacher)
    sources = workload or []
    if not sources and (log is None or steps):
        raise BadInput("--workload is missing: name what to train on; only a log can be imitated without")
    for source in sources:
        warn_of_malformed_rows(load(source, 0)[0])  # bad input is said before any work is done
    from rich.console import Console  # noqa: PLC0415

    from policy_net.exchange.policy_file import check_writable, read_policy_file, write_policy_file  # noqa: PLC0415
    from policy_net.laboratory.training.teacher import Teacher, watched  # noqa: PLC0415

    check_writable(out)
    console = Console(stderr=True)
    if policy == SET:
        if jobs_per_batch is not None:
            raise BadInput(f"--jobs-per-batch is for dl2 policies; leave it out with --policy {SET}")
        shown = None
        if log is not None:
            shown = Teacher.from_file(log, world.slot_seconds)
        elif teacher is not None:
            shown = watched(teacher, sources, load, truth, effect, world.seed)
        begun = None if start is None else read_policy_file(start)
        from policy_net.laboratory.commands.train_set import SetTraining  # noqa: PLC0415

        trained = SetTraining(sources, load, truth, effect, world.seed, steps, max_seconds, begun, shown).run(console)
    else:
        from policy_net.laboratory.commands.train_dl2 import Dl2Training  # noqa: PLC0415

        trained = Dl2Training(
            sources=sources,
            load=load,
            speeds=truth,
            placement_effect=effect,
            seed=world.seed,
            start=start,
            jobs_per_batch=jobs_per_batch,
            teacher=teacher if log is None else Teacher.from_file(log, world.slot_seconds),
            imitation_steps=imitation_steps,
            steps=steps,
            max_seconds=max_seconds,
            reward=reward,
            learning_rate=learning_rate,
        ).run(console)
    write_policy_file(out, trained)
    console.print(f"{out}: {trained.spec.policy}, {trained.spec.parameter_count} parameters")


def _log_of(name: str) -> Path:
    """Raises BadInput if there is no such file."""
    path = Path(name)
    if not path.is_file():
        raise BadInput(
            f"--imitate: unknown policy {name!r}, and no such file; use a log or one of {', '.join(policy_names())}"
        )
    return path
