"""Command `policy-net tune`: trainings with settings that Optuna proposes, and the best of them as a training file.

Code that trains or keeps the study is loaded when it is needed.
"""

from __future__ import annotations

import dataclasses
import math
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from foundation.command_line import with_option_groups
from foundation.output import Form, Output
from policy_net.domain import PlacementEffect, SpeedModel
from policy_net.errors import BadInput
from policy_net.laboratory.commands.world_options import WorldOptions, assumptions

if TYPE_CHECKING:
    from policy_net.laboratory.training.offline import Episode
    from policy_net.laboratory.tuning.engine import Engine
    from policy_net.laboratory.tuning.space import Space
    from policy_net.laboratory.tuning.study_file import StudyFile
    from policy_net.laboratory.tuning.tuner import StudyPlan
    from policy_net.laboratory.tuning.worlds import TuningWorlds

USUAL_STEPS = {"dl2": 200, "set": 12}
"""A trial takes half a minute of one core."""
MOST_STEPS = 1_000_000
"""More are a slip of the pen: a trial is a short training."""


class EngineName(StrEnum):
    """Places where trials run."""

    LOCAL = "local"
    RAY = "ray"


@dataclass(frozen=True, slots=True)
class TrialOptions:
    """Options of trials."""

    trials: Annotated[
        int, typer.Option("--trials", min=1, max=100_000, help="Trials in all, those that DIR has already included.")
    ] = 16
    steps: Annotated[
        int | None,
        typer.Option(
            "--steps",
            min=1,
            max=MOST_STEPS,
            help="Of each trial: updates of dl2, 200 unless given; of set 32 replays of 500 jobs, 12 unless given.",
        ),
    ] = None
    teacher: Annotated[
        str | None,
        typer.Option("--imitate", metavar="NAME", help="Whom every trial of dl2 imitates first; varies unless given."),
    ] = None
    imitation_steps: Annotated[
        int,
        typer.Option(
            "--imitation-steps",
            min=1,
            max=MOST_STEPS,
            help="Mini-batches of imitation, at most; an eighth of them at least.",
        ),
    ] = 800
    vary: Annotated[
        list[str] | None,
        typer.Option(
            "--vary", metavar="NAME", help="A parameter to vary (repeatable); all of the policy's unless given."
        ),
    ] = None
    space: Annotated[
        Path | None,
        typer.Option("--space", metavar="FILE", help="Parameters and bounds, a part of what DIR/space.yaml shows."),
    ] = None
    rungs: Annotated[
        int, typer.Option("--rungs", min=1, max=20, help="How often a trial is scored; it may be given up at each.")
    ] = 3
    score_worlds: Annotated[
        int, typer.Option("--worlds", min=2, max=1000, help="Validation workloads that score a trial.")
    ] = 6
    batch: Annotated[
        int,
        typer.Option(
            "--batch", min=1, max=1000, help="Trials that are proposed together, before any of them has ended."
        ),
    ] = 4
    confirm: Annotated[
        bool,
        typer.Option("--confirm/--no-confirm", help="Train the best and the default settings anew, on other seeds."),
    ] = True


@dataclass(frozen=True, slots=True)
class MachineOptions:
    """Options of the machine on which trials run."""

    processes: Annotated[
        int, typer.Option("--processes", min=1, max=10_000, help="Trials at a time; each takes one core.")
    ] = 1
    engine: Annotated[EngineName, typer.Option("--engine", help="Where trials run; ray needs fedl2[ray].")] = (
        EngineName.LOCAL
    )
    max_seconds: Annotated[
        float | None, typer.Option("--max-seconds", min=0.0, help="Begin no batch after so long; the study can go on.")
    ] = None


@dataclass(frozen=True)
class OptionsLoader:
    """Maker of worlds from the options; a `tuning.worlds.Loader`."""

    world: WorldOptions

    def load(self, source: str, seed: int, window: int) -> Episode:
        """See `Loader`."""
        moved = dataclasses.replace(self.world, seed=seed, window=window)
        workload = moved.workload(source, self._truth)
        return workload, moved.environment(workload)

    def speeds(self) -> SpeedModel:
        """See `Loader`."""
        return self._truth

    def placement_effect(self) -> PlacementEffect | None:
        """See `Loader`."""
        return self.world.placement_effect()

    def __reduce__(self) -> tuple[Any, ...]:
        """Without what was read: a loader is small, and equal ones look equal."""
        return OptionsLoader, (self.world,)

    @cached_property
    def _truth(self) -> SpeedModel:
        return self.world.speeds()


@with_option_groups
def tune_command(
    out: Annotated[Path, typer.Option("--out", metavar="DIR", help="The study's folder; another run goes on there.")],
    workload: Annotated[
        list[str], typer.Option("--workload", metavar="SRC", help="What to train on, as for train (repeatable).")
    ],
    trial: TrialOptions,
    machine: MachineOptions,
    world: WorldOptions,
    policy: Annotated[str, typer.Option("--policy", help="The kind of policy to tune: dl2 or set.")] = "dl2",
    output: Output = Form.TABLE,
) -> None:
    """Choose settings of training by trials; the best ones become a file for `policy-net train --config`."""
    if policy not in USUAL_STEPS:
        raise BadInput(f"--policy {policy}: use dl2 or set")
    if machine.max_seconds is not None and not math.isfinite(machine.max_seconds):
        raise BadInput(f"--max-seconds is {machine.max_seconds}; use a finite number")
    plan = _plan(policy, workload, trial, world)
    notes = [*_assumed(plan.worlds, world, for_people=output.for_people)]  # bad input is said before any work is done
    from contextlib import closing  # noqa: PLC0415

    from rich.console import Console  # noqa: PLC0415

    from foundation.clocks import deadline  # noqa: PLC0415
    from foundation.locks import FileLock, LockHeld  # noqa: PLC0415
    from policy_net.laboratory.commands.training_progress import training_progress  # noqa: PLC0415
    from policy_net.laboratory.commands.tune_result import show, write_best  # noqa: PLC0415
    from policy_net.laboratory.tuning.space import write_space_file  # noqa: PLC0415
    from policy_net.laboratory.tuning.study_file import StudyFile, Trial  # noqa: PLC0415
    from policy_net.laboratory.tuning.tuner import tune  # noqa: PLC0415

    console = Console(stderr=True)
    is_over = deadline(machine.max_seconds)
    out.mkdir(parents=True, exist_ok=True)
    try:
        lock = FileLock(out / "lock")
    except LockHeld as error:
        raise BadInput(f"{out}: another run (process {error.holder}) tunes there; wait for its end") from error
    try:
        with lock, closing(StudyFile(out, plan.space, _identity(plan, workload, trial, world))) as study:
            print(*notes, sep="\n", end="\n" if notes else "", file=sys.stderr)
            if study.trials():
                console.print(_standing_of(study, trial.trials), soft_wrap=True, markup=False)
            write_space_file(out, plan.space)
            with closing(_engine(machine)) as engine, training_progress(console) as progress:
                task = progress.add_task("trials", total=trial.trials, figure="")
                best = math.inf

                def on_trial(ended: Trial) -> None:
                    nonlocal best
                    report = ended.report
                    if report is not None and report.failure is None and not report.given_up:
                        best = min(best, report.scores[-1])
                    progress.update(task, advance=1, figure=f"best log JCT {best:.3f}" if best < math.inf else "")

                outcome = tune(plan, study, engine, trial.trials, is_over=is_over, on_trial=on_trial)
            written = write_best(out, plan, outcome)
            show(plan, outcome, written, output)
    except KeyboardInterrupt:
        kept = f"kept: {out}, with every trial that has ended; the same command goes on"
        console.print(kept, soft_wrap=True, markup=False)
        raise


def _standing_of(study: StudyFile, trials: int) -> str:
    ended = sum(trial.report is not None for trial in study.trials())
    if ended >= trials:
        return f"{study.path.parent}: its {trials} trials have ended; nothing of them is made again"
    return f"{study.path.parent}: goes on at trial {ended + 1} of {trials}"


def _plan(policy: str, sources: list[str], trial: TrialOptions, world: WorldOptions) -> StudyPlan:
    """Plan of a study, checked before there is a folder.

    Raises:
        BadInput: an option or a source cannot be used.
    """
    space = _space(policy, trial)
    steps = trial.steps or USUAL_STEPS[policy]
    if trial.rungs > steps:
        raise BadInput(f"--rungs {trial.rungs}: a trial has {steps} steps; use at most as many rungs")
    if world.window:
        raise BadInput(f"--window {world.window}: tuning takes windows to train and to choose by itself; leave it out")
    from policy_net.laboratory.tuning.trial import Budget  # noqa: PLC0415
    from policy_net.laboratory.tuning.tuner import StudyPlan  # noqa: PLC0415
    from policy_net.laboratory.tuning.worlds import TuningWorlds, check_source  # noqa: PLC0415

    for source in sources:
        check_source(source)
    loader = OptionsLoader(world)
    worlds = TuningWorlds(
        loader, tuple(sources), {source: found for source in sources if (found := _windows(loader, source))}
    )
    budget = Budget(steps, trial.rungs, trial.score_worlds)
    return StudyPlan(space, worlds, budget, world.seed, trial.batch, trial.confirm)


def _assumed(worlds: TuningWorlds, world: WorldOptions, *, for_people: bool) -> Iterator[str]:
    """What a reader must know to believe the trials, once a source, in the words of `replay`; reads every world.

    Raises:
        BadInput: a source cannot be used.
    """
    from policy_net.laboratory.tuning.worlds import WorldPart  # noqa: PLC0415

    for number, source in enumerate(worlds.sources):
        training, *_ = [worlds.episode(part, number) for part in WorldPart]
        yield from assumptions(*training, world, for_people=for_people)
        if for_people and source in worlds.windows:
            trains, chooses, judges = (window + 1 for window in worlds.windows[source])
            yield f"  windows of --limit-jobs: {trains} trains, as told here, {chooses} chooses, {judges} judges"


def _space(policy: str, trial: TrialOptions) -> Space:
    """Space of the options.

    Raises:
        BadInput: they, or the space file, cannot be used.
    """
    import policy_net.baselines  # noqa: PLC0415
    import policy_net.dl2  # noqa: PLC0415
    import policy_net.set_policy  # noqa: PLC0415, F401  (both register names that can be imitated)
    from policy_net.laboratory.tuning.space import read_space_file, space_of  # noqa: PLC0415
    from policy_net.policy import advice, policy_names  # noqa: PLC0415

    if policy != "dl2" and trial.teacher is not None:
        raise BadInput(f"--imitate {trial.teacher}: only trials of dl2 begin with imitation; leave it out")
    if trial.teacher is not None and trial.teacher not in policy_names():
        raise BadInput(f"--imitate {trial.teacher}: unknown policy; use one of {advice(trial.teacher)}")
    if trial.space is not None and trial.vary:
        raise BadInput(f"--vary {trial.vary[0]}: --space names what varies; leave one of them out")
    space = space_of(policy, trial.vary or (), trial.imitation_steps, trial.teacher)
    return space if trial.space is None else read_space_file(trial.space, space)


def _windows(loader: OptionsLoader, source: str) -> tuple[int, int, int] | None:
    """Windows of recorded jobs; None where jobs are generated, with another seed for each world."""
    from policy_net.laboratory.tuning.worlds import windows_of  # noqa: PLC0415
    from policy_net.laboratory.workloads.sources import GENERATOR_PREFIX  # noqa: PLC0415

    if source.startswith(GENERATOR_PREFIX):
        return None
    everything = dataclasses.replace(loader.world, limit_jobs=None)
    jobs = len(everything.workload(source, loader.speeds()).jobs)
    return windows_of(source, jobs, loader.world.limit_jobs)


def _identity(plan: StudyPlan, sources: list[str], trial: TrialOptions, world: WorldOptions) -> dict[str, Any]:
    usual = WorldOptions()
    options = {
        item.name: value if isinstance(value, int | float | str | list) else str(value)
        for item in dataclasses.fields(world)
        if (value := getattr(world, item.name)) != getattr(usual, item.name) and item.name != "seed"
    }
    return {
        "workloads": sources,
        "seed": plan.seed,
        "batch": trial.batch,
        **dataclasses.asdict(plan.budget),
        "options": options,
    }


def _engine(machine: MachineOptions) -> Engine:
    if machine.engine is EngineName.RAY:
        import os  # noqa: PLC0415  (what Ray reads itself is looked at before it does)

        from policy_net.laboratory.tuning.engine import RayEngine  # noqa: PLC0415

        return RayEngine(machine.processes, environment=os.environ)
    from policy_net.laboratory.tuning.engine import LocalEngine  # noqa: PLC0415

    return LocalEngine(machine.processes)
