"""Training behind `policy-net train --policy set`: priors, residual and verdict."""

from __future__ import annotations

import dataclasses
import math
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from rich.console import Console
from rich.progress import Progress

from policy_net.domain import PlacementEffect, SpeedModel
from policy_net.errors import BadInput
from policy_net.exchange.policy_file import PolicyFile, digest_of
from policy_net.exchange.spec import SET, SetSpec, Weights
from policy_net.laboratory.commands.training_progress import training_progress
from policy_net.laboratory.training import SetMethod
from policy_net.laboratory.training.evolution import EvolutionSettings, evolve
from policy_net.laboratory.training.offline import Episode, source_of_episode
from policy_net.laboratory.training.set_training import (
    FIRST_VALIDATION_WORLD,
    PRIOR_WORLDS,
    VALIDATION_WORLDS,
    Verdict,
    Worlds,
    changes_against,
    learn_priors,
    log_losses,
)
from policy_net.laboratory.training.settings import SetSettings
from policy_net.laboratory.training.teacher import Teacher
from policy_net.laboratory.training.twin_teaching import begin, teach
from policy_net.laboratory.training.twin_windows import TwinWindow
from policy_net.laboratory.training_checkpoint import Kept, TrainingCheckpoint
from policy_net.laboratory.training_runs import RunRecorder
from policy_net.set_policy.policy import default_set_file
from policy_net.set_policy.residual import initial_residual

FIRST_EVOLUTION_WORLD = 1000
"""Worlds before it are those of the priors."""
MOST_WORLDS_READ = 8
"""That are kept; a recording may have a hundred thousand jobs."""
TWIN_WORLDS = 64
"""That replays in a twin are drawn from, of each source; how wrong their speeds are is drawn for every replay."""


@dataclass(frozen=True)
class SetTraining:
    """What the command was asked for.

    Attributes:
        load: makes an episode of a source and a round number.
        generations: of evolution, or updates by replays in a twin; 0 trains the priors alone, or imitates alone.
        start: a file to go on from, in place of learning priors first.
        teacher: whose decisions are imitated first; from the shipped policy unless `start` is another.
    """

    sources: list[str]
    load: Callable[[str, int], Episode]
    speeds: SpeedModel
    placement_effect: PlacementEffect | None
    seed: int
    generations: int
    max_seconds: float | None
    start: PolicyFile | None = None
    teacher: Teacher | None = None
    settings: SetSettings = field(default_factory=SetSettings)
    recorder: RunRecorder | None = None
    checkpoint: TrainingCheckpoint | None = None
    kept: Kept | None = None

    def run(self, console: Console) -> PolicyFile:
        """Train; the card says from what, and how the residual did on the validation worlds.

        Raises:
            BadInput: the log to imitate cannot be used.
        """
        with training_progress(console) as progress:
            worlds = Worlds(self._episode, self.speeds, self.placement_effect)
            begun = self._begin(worlds, progress, console) if self.kept is None else self.kept.start
            if self.checkpoint is not None and self.kept is None and self.generations:
                if self.recorder is not None:
                    self.recorder.begin()
                self.checkpoint.begin(begun)
            return self._evolve(begun, worlds, progress, console) if self.generations else begun

    def _begin(self, worlds: Worlds, progress: Progress, console: Console) -> PolicyFile:
        """What evolution starts from: an imitation, a file, or the planner with priors that are learned first."""
        card: dict[str, Any] = {"seed": self.seed} | ({"workloads": self.sources} if self.sources else {})
        if self.teacher is not None:
            start = self.start or default_set_file()
            spec = _set_spec(start)
            if spec.prices:
                raise BadInput(
                    "--imitate: the file to start from has prices of its own, and a log is imitated in the usual ones:"
                    " give --from a file without"
                )
            task = progress.add_task("imitation", total=None, figure="")
            values: list[float] = []

            def on_value(value: float) -> None:
                progress.update(task, figure=f"log-likelihood {value:.3f}")
                values.append(value)

            imitated = self.teacher.imitate_set(start, spec, on_value)
            if self.recorder is not None:  # how many there are to be is not known before
                for number, value in enumerate(values, start=1):
                    self.recorder.point("imitation: log-likelihood", number, len(values), value)
            for line in imitated.agreement_lines:
                console.print(line)
            card |= {"parent": digest_of(start.to_bytes())} | imitated.facts
            return PolicyFile(spec, imitated.weights, card, imitated.priors)
        if self.start is not None:
            card |= {"parent": digest_of(self.start.to_bytes())}
            return PolicyFile(_set_spec(self.start), self.start.weights, card, self.start.priors)
        if self.settings.method is SetMethod.TWIN:
            made = begin(self.settings, self.seed)
            return PolicyFile(made.spec, made.weights, card | {"started_from": self.settings.twin.start}, made.priors)
        spec = SetSpec(hidden=self.settings.hidden)
        task = progress.add_task("speeds", total=PRIOR_WORLDS, figure="")
        priors = learn_priors(worlds, spec, on_world=lambda: progress.advance(task))
        return PolicyFile(spec, initial_residual(spec, self.seed), card | {"prior_worlds": PRIOR_WORLDS}, priors)

    def _evolve(self, begun: PolicyFile, worlds: Worlds, progress: Progress, console: Console) -> PolicyFile:
        """Evolve the residual, or teach in a twin; what does not win against what it began with is left out."""
        spec = _set_spec(begun)
        deadline = None if self.max_seconds is None else time.monotonic() + self.max_seconds

        def stop() -> bool:
            return deadline is not None and time.monotonic() > deadline

        if self.settings.method is SetMethod.TWIN:
            weights, done, facts = self._taught(begun, progress, stop)
        else:
            weights, done, facts = self._evolved(begun, worlds, spec, progress, stop)
        if not done:
            return begun
        validating = progress.add_task("validation", total=VALIDATION_WORLDS, figure="")
        numbers = range(FIRST_VALIDATION_WORLD, FIRST_VALIDATION_WORLD + VALIDATION_WORLDS)
        changes = changes_against(
            worlds, spec, begun.priors, weights, begun.weights, numbers, lambda: progress.advance(validating)
        )
        verdict = Verdict.over(changes)
        card = {
            **begun.card,
            **facts,
            "validation_change": round(verdict.change, 5),
            "validation_standard_error": round(verdict.standard_error, 5),
            "residual_published": verdict.publish,
        }
        if verdict.publish:
            return PolicyFile(spec, weights, card, begun.priors)
        evolved = self.settings.method is SetMethod.EVOLUTION
        what = "the residual" if evolved else "what was taught"
        from_nothing = evolved and self.teacher is None and self.start is None
        rest = "the planner with priors" if from_nothing else "what it began with"
        console.print(
            f"{what} changes average JCTs by {verdict.change:+.2%} ± {verdict.standard_error:.2%} on"
            f" validation worlds: it is left out, and the policy is {rest}"
        )
        return PolicyFile(spec, begun.weights, card, begun.priors)

    def _evolved(
        self, begun: PolicyFile, worlds: Worlds, spec: SetSpec, progress: Progress, stop: Callable[[], bool]
    ) -> tuple[Weights, int, dict[str, Any]]:
        """Weights, generations, and what the card says of them."""
        wanted = self.settings
        before = 0 if self.kept is None else self.kept.done  # on whose draws and worlds no other follow
        settings = EvolutionSettings(wanted.pairs, wanted.sigma, wanted.learning_rate, self.seed + before)
        evolving = progress.add_task("evolution", total=self.generations, figure="")
        done = before

        def on_generation(generation: int, loss: float) -> None:
            nonlocal done
            done = before + generation
            progress.update(evolving, completed=done, figure=f"log JCT {loss:.3f}")
            if self.recorder is not None:
                self.recorder.point("evolution: average JCT [s]", done, self.generations, math.exp(loss))

        def on_average(_: int, reached: Weights) -> None:
            if self.checkpoint is not None:
                self.checkpoint.offer(done, lambda: PolicyFile(spec, reached, begun.card, begun.priors))

        weights = evolve(
            begun.weights if self.kept is None else self.kept.policy.weights,
            log_losses(worlds, spec, begun.priors, FIRST_EVOLUTION_WORLD + before * wanted.pairs),
            settings,
            generations=max(0, self.generations - before),
            on_average=on_average,
            stop=stop,
            on_generation=on_generation,
        )
        return weights, done, {"generations": done, "evolution": dataclasses.asdict(settings)}

    def _taught(
        self, begun: PolicyFile, progress: Progress, stop: Callable[[], bool]
    ) -> tuple[Weights, int, dict[str, Any]]:
        """The same of updates by replays in a twin."""
        teaching = progress.add_task("twin", total=self.generations, figure="")
        read: dict[int, Episode] = {}
        spec, done = _set_spec(begun), 0 if self.kept is None else self.kept.done

        def draw(generator: np.random.Generator) -> TwinWindow:
            number = int(generator.integers(TWIN_WORLDS * len(self.sources)))
            if number not in read:
                if len(read) >= MOST_WORLDS_READ:
                    read.pop(next(iter(read)))
                read[number] = self._episode(FIRST_EVOLUTION_WORLD + number)
            return TwinWindow(*read[number], self.speeds, self.placement_effect)

        def on_update(update: int, reached: Weights, difference: float) -> None:
            nonlocal done
            done = update
            if self.checkpoint is not None:
                self.checkpoint.offer(done, lambda: PolicyFile(spec, reached, begun.card, begun.priors))
            progress.update(teaching, completed=update, figure=f"pairs differ by {difference:.2%}")
            if self.recorder is not None:
                self.recorder.point("twin: half the log ratio of a pair", update, self.generations, difference)

        wanted = self.settings.twin
        weights = teach(
            begun,
            draw,
            wanted,
            self.seed,
            updates=self.generations,
            stop=stop,
            on_update=on_update,
            reached=None if self.kept is None else (done, self.kept.policy.weights),
        )
        return weights, done, {"updates": done, "twin": wanted.model_dump(mode="json")}

    def _episode(self, number: int) -> Episode:
        """World by number: the sources in turn, each with its seed moved on by the whole number."""
        source = self.sources[number % len(self.sources)]
        return self.load(source_of_episode(source, number), number)


def _set_spec(file: PolicyFile) -> SetSpec:
    """Raises BadInput if the file holds another kind of policy."""
    if not isinstance(file.spec, SetSpec):
        raise BadInput(f"--from: the file holds a {file.spec.policy!r} policy; use a {SET} policy with --policy {SET}")
    return file.spec
