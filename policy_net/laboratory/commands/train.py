"""Command `policy-net train`: a warm start by imitation, then learning in simulation, into a policy file.

Code that trains is loaded when something is trained, so that help and refusals of options are quick.
"""

from __future__ import annotations

import dataclasses
import math
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

import policy_net.baselines
import policy_net.dl2
import policy_net.set_policy  # noqa: F401  (both register names that can be imitated)
from foundation.command_line import with_option_groups
from foundation.output import Form, Output, show
from policy_net.domain import RewardKind
from policy_net.errors import BadInput
from policy_net.laboratory.commands.world_options import WorldOptions, assumptions
from policy_net.laboratory.training import OFFLINE_LEARNING_RATE, Dl2Method
from policy_net.policy import DEFAULT_POLICY, advice, policy_names

if TYPE_CHECKING:
    from policy_net.exchange.policy_file import PolicyFile
    from policy_net.laboratory.commands.train_dl2 import Dl2Training
    from policy_net.laboratory.commands.train_set import SetTraining
    from policy_net.laboratory.training.offline import Episode
    from policy_net.laboratory.training.settings import Dl2Settings, TrainingSettings
    from policy_net.laboratory.training_checkpoint import InterruptedTraining, TrainingCheckpoint
    from policy_net.laboratory.training_runs import RunRecorder


def kind_and_start(policy: str | None, start: Path | None, config: Path | None) -> tuple[str | None, Path | None]:
    """The kind of policy, and the file to go on from; `--policy set-taught` and `--from set-taught` are enough.

    Raises:
        BadInput: there is no such kind, or two things to go on from.
    """
    from policy_net.exchange.spec import SET  # noqa: PLC0415

    if policy == DEFAULT_POLICY:
        if start is not None and str(start) != policy:
            raise BadInput(f"--policy {policy}: --from {start} says already what to go on from; use --policy {SET}")
        return SET, Path(policy)
    if policy not in ("dl2", SET, None):
        raise BadInput(f"--policy {policy}: use dl2 or {SET}")
    by_start = policy is None and config is None and str(start) in (SET, DEFAULT_POLICY)
    return SET if by_start else policy, start


def check_start(start: Path | None) -> None:
    """Raise BadInput if the start is no policy file, or is damaged; it is read again where it is trained."""
    if start is None:
        return
    from policy_net.exchange.policy_file import read_policy_file  # noqa: PLC0415
    from policy_net.exchange.shipped import file_of  # noqa: PLC0415

    read_policy_file(file_of(start))


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
    policy: Annotated[
        str | None, typer.Option("--policy", help="The kind of policy to train: dl2, unless --config says so, or set.")
    ] = None,
    steps: Annotated[
        int,
        typer.Option(
            "--steps",
            min=0,
            help="Updates; of a set policy generations, or updates in a twin. 0 leaves the start as it is.",
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
    imitation_steps: Annotated[
        int | None, typer.Option("--imitation-steps", min=1, help="Mini-batches of imitation; 4000 unless given.")
    ] = None,
    jobs_per_batch: Annotated[
        int | None,
        typer.Option("--jobs-per-batch", min=1, max=1024, help="J, the jobs one inference sees; 20 unless given."),
    ] = None,
    start: Annotated[
        Path | None,
        typer.Option(
            "--from", metavar="FILE", help="Go on from this policy file, or from dl2, set or set-taught as they ship."
        ),
    ] = None,
    reward: Annotated[
        RewardKind | None,
        typer.Option("--reward", help="What the paper's actor-critic climbs, which is used if this is given."),
    ] = None,
    learning_rate: Annotated[
        float | None,
        typer.Option(
            "--learning-rate",
            min=0.0,
            help=f"Adam's first; 0.001 unless given, of the actor-critic {OFFLINE_LEARNING_RATE:g}.",
        ),
    ] = None,
    config: Annotated[
        Path | None,
        typer.Option(
            "--config",
            metavar="FILE",
            help="Settings of the network and its training, as `policy-net tune` writes them; options come first.",
        ),
    ] = None,
    max_seconds: Annotated[float | None, typer.Option("--max-seconds", min=0.0, help="Stop after so long.")] = None,
    run: Annotated[
        Path | None,
        typer.Option(
            "--run", metavar="DIR", help="Write there how training went, step by step, for `policy-net runs`."
        ),
    ] = None,
    resume: Annotated[
        bool,
        typer.Option("--resume", help="Go on with the interrupted training in --run; give the same options again."),
    ] = False,
    output: Output = Form.TABLE,
) -> None:
    """Train a policy in simulation and write it, with a card that says how it came to be."""
    policy, start = kind_and_start(policy, start, config)
    for option, value in (("learning-rate", learning_rate), ("max-seconds", max_seconds)):
        if value is not None and not math.isfinite(value):
            raise BadInput(f"--{option} is {value}; use a finite number")
    if resume and run is None:
        raise BadInput("--resume: which training is to go on? Name its folder with --run DIR")
    settings = _settings_of(config, policy, jobs_per_batch)
    settings = settings.model_copy(update={"dl2": _with_options(settings.dl2, imitation_steps, learning_rate, reward)})
    truth, effect = world.speeds(), world.placement_effect()

    def load(source: str, round_number: int) -> Episode:
        moved = dataclasses.replace(world, seed=world.seed + round_number)
        loaded = moved.workload(source, truth)
        return loaded, moved.environment(loaded)

    teacher = _teacher_of(settings, config) if teacher is None else teacher
    log = None if teacher is None or teacher in policy_names() else _log_of(teacher)
    sources = workload or []
    if not sources and (log is None or steps):
        raise BadInput("--workload is missing: name what to train on; only a log can be imitated without")
    # Bad input is said before any work is done.
    notes = [line for source in sources for line in assumptions(*load(source, 0), world, for_people=output.for_people)]
    from rich.console import Console  # noqa: PLC0415

    from policy_net.exchange.policy_file import check_writable, write_policy_file  # noqa: PLC0415
    from policy_net.laboratory.training.teacher import Teacher  # noqa: PLC0415
    from policy_net.laboratory.training_runs import RunRecorder  # noqa: PLC0415

    check_writable(out)
    check_start(start)
    recorder = checkpoint = kept = None
    if run is not None:
        requested = {
            "policy": settings.policy,
            "workloads": sources,
            "steps": steps,
            "imitate": teacher,
            "from": start,
            "max_seconds": max_seconds,
            **({} if jobs_per_batch is None else {"jobs_per_batch": jobs_per_batch}),
            "training": settings.model_dump(mode="json")[settings.policy],
            "world": dataclasses.asdict(world),
        }
        recorder = RunRecorder(run, requested, resume=resume)
        checkpoint, kept = _checkpoint(run, resume, recorder)
    print(*notes, sep="\n", end="\n" if notes else "", file=sys.stderr)
    console = Console(stderr=True)
    try:
        order = _kind(settings.policy)(
            settings,
            sources,
            load,
            world.seed,
            truth,
            effect,
            steps=steps,
            max_seconds=max_seconds,
            start=start,
            teacher=teacher if log is None else Teacher.from_file(log, world.slot_seconds),
            jobs_per_batch=jobs_per_batch,
            recorder=recorder,
            checkpoint=checkpoint,
            kept=kept,
        )
        trained = order.run(console)
    except KeyboardInterrupt:
        console.print(_what_is_kept(checkpoint, steps), soft_wrap=True)
        raise
    if order.is_nothing:
        what = "the weights are random" if start is None else f"the weights are those of {start}"
        console.print(f"nothing was trained: {what}; give --steps N or --imitate NAME", soft_wrap=True)
        trained = dataclasses.replace(trained, card={**trained.card, "trained": False})
    write_policy_file(out, trained)
    console.print(f"{out}: {trained.spec.policy}, {trained.spec.parameter_count} parameters")
    if recorder is not None:
        _end(recorder, out, trained)
    if checkpoint is not None:
        checkpoint.clear()
    if not output.for_people:  # who read it on stderr already
        _show_facts(out, trained, output)


def _show_facts(out: Path, trained: PolicyFile, output: Form) -> None:
    spec, card = trained.spec, dict(trained.card)
    identity = {"policy": spec.policy, "spec_digest": spec.digest, "parameters": spec.parameter_count}
    facts = {"file": str(out), **identity, "card": card}
    show(output, facts, "", [facts])


def _kind(policy: str) -> type[Dl2Training | SetTraining]:
    if policy == "dl2":
        from policy_net.laboratory.commands.train_dl2 import Dl2Training  # noqa: PLC0415

        return Dl2Training
    from policy_net.laboratory.commands.train_set import SetTraining  # noqa: PLC0415

    return SetTraining


def _checkpoint(
    run: Path, resume: bool, recorder: RunRecorder
) -> tuple[TrainingCheckpoint, InterruptedTraining | None]:
    """Checkpoints of the run's folder, and the one that is kept there of a run that is to go on."""
    from policy_net.laboratory.training_checkpoint import TrainingCheckpoint, read_checkpoint  # noqa: PLC0415
    from policy_net.laboratory.training_runs import RUN_FILE  # noqa: PLC0415

    checkpoint = TrainingCheckpoint(run)
    kept = read_checkpoint(run) if resume and (run / RUN_FILE).exists() else None
    if kept is not None:
        checkpoint.kept = kept.done
        checkpoint.before_seconds = recorder.before_seconds = kept.spent_seconds
    return checkpoint, kept


def _what_is_kept(checkpoint: TrainingCheckpoint | None, steps: int) -> str:
    """Keep a last checkpoint of an interrupted training, and say what is kept."""
    if checkpoint is None:
        return "nothing is kept: with --run DIR an interrupted training can go on"
    checkpoint.keep()
    if checkpoint.kept is None:
        return "no step is kept yet: --resume begins anew in the same folder"
    return f"kept: {checkpoint.path}, after {checkpoint.kept} of {steps} steps; the same command with --resume goes on"


def _end(recorder: RunRecorder, out: Path, trained: PolicyFile) -> None:
    """Write the end of a run, whose policy is written already.

    Raises:
        BadInput: the run's folder cannot be written.
    """
    final = {"file": str(out), "parameters": trained.spec.parameter_count}
    try:
        recorder.end({**final, "spec": trained.spec.model_dump(mode="json"), **trained.card})
    except OSError as error:
        raise BadInput(f"--run: its folder cannot be written whole ({error.strerror}); {out} is written") from error


def _settings_of(config: Path | None, policy: str | None, jobs_per_batch: int | None) -> TrainingSettings:
    """Settings of the file, or the defaults.

    Raises:
        BadInput: the file cannot be used, or is for another kind of policy.
    """
    from policy_net.laboratory.training.settings import TrainingSettings  # noqa: PLC0415
    from policy_net.settings import checked_settings, read_settings_file  # noqa: PLC0415

    if config is None:
        settings = checked_settings({} if policy is None else {"policy": policy}, TrainingSettings, "--policy")
    else:
        settings = read_settings_file(config, TrainingSettings, "policy")
    if policy not in (None, settings.policy):
        raise BadInput(f"--policy {policy}: {config} is for a {settings.policy} policy; leave one of them out")
    if jobs_per_batch is not None and settings.policy != "dl2":
        raise BadInput(f"--jobs-per-batch is for dl2 policies; leave it out with --policy {settings.policy}")
    return settings


def _teacher_of(settings: TrainingSettings, config: Path | None) -> str | None:
    """The scheduler that the file wants imitated; None where it names none.

    Raises:
        BadInput: nobody has this name; a log is named by the option, as it is no setting.
    """
    name = settings.dl2.imitate if settings.policy == "dl2" else None
    if name is not None and name not in policy_names():
        raise BadInput(f"{config}: setting dl2.imitate = {name!r}: unknown policy; use one of {advice(name)}")
    return name


def _with_options(
    settings: Dl2Settings, imitation_steps: int | None, learning_rate: float | None, reward: RewardKind | None
) -> Dl2Settings:
    changed: dict[str, Any] = {} if imitation_steps is None else {"imitation_steps": imitation_steps}
    if reward is not None:
        changed["method"] = Dl2Method.ACTOR_CRITIC
        changed["actor_critic"] = settings.actor_critic.model_copy(update={"reward": reward})
    if learning_rate is not None and changed.get("method", settings.method) is Dl2Method.GROUPS:
        changed["groups"] = settings.groups.model_copy(update={"learning_rate": learning_rate})
    elif learning_rate is not None:
        changed["learning_rate"] = learning_rate
    return settings.model_copy(update=changed)


def _log_of(name: str) -> Path:
    path = Path(name)
    if not path.is_file():
        raise BadInput(f"--imitate: unknown policy {name!r}, and no such file; use a log or one of {advice(name)}")
    return path
