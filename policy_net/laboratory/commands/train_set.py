"""Training behind `policy-net train --policy set`: priors, residual and verdict."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from rich.console import Console
from rich.progress import Progress

from foundation.clocks import deadline
from policy_net.errors import BadInput
from policy_net.exchange.policy_file import PolicyFile, digest_of, read_policy_file
from policy_net.exchange.shipped import file_of
from policy_net.exchange.spec import SET, SetSpec, Weights
from policy_net.laboratory.commands.training_order import TrainingOrder
from policy_net.laboratory.commands.training_progress import training_progress
from policy_net.laboratory.training import SetMethod
from policy_net.laboratory.training.evolution import evolve
from policy_net.laboratory.training.imitation import watch_in_turns
from policy_net.laboratory.training.offline import Episode, endless_episodes, source_of_episode
from policy_net.laboratory.training.set_training import (
    FIRST_VALIDATION_WORLD,
    PRIOR_WORLDS,
    VALIDATION_WORLDS,
    NumberedWorlds,
    ResidualVerdict,
    begin,
    changes_against,
    learn_priors,
    log_losses,
    teach,
)
from policy_net.laboratory.training.teacher import Teacher
from policy_net.laboratory.training.twin_windows import TwinWindow
from policy_net.set_policy.policy import default_set_file
from policy_net.set_policy.residual import initial_residual

WATCHED_EPISODES = 6
"""Workloads on which a scheduler is watched: a set policy has few parameters."""
FIRST_EVOLUTION_WORLD = 1000
"""Worlds before it are those of the priors."""
MOST_WORLDS_READ = 8
"""Worlds that are kept; a recording may have a hundred thousand jobs."""
TWIN_WORLDS = 64
"""Worlds of each source, from which replays in a twin are drawn; errors of their speeds are drawn for every replay."""


class SetTraining(TrainingOrder):
    """The order of a `set` policy; without steps it trains the priors alone, or imitates alone."""

    def run(self, console: Console) -> PolicyFile:
        """Train; the card has the start, and the residual's verdict.

        Raises:
            BadInput: the log to imitate cannot be used.
        """
        with training_progress(console) as progress:
            worlds = NumberedWorlds(self._episode, self.speeds, self.placement_effect)
            begun = self._begin(worlds, progress, console) if self.kept is None else self.kept.start
            if not self.steps:
                return begun
            self.keep_start(begun)
            return self._evolve(begun, worlds, progress, console)

    def _begin(self, worlds: NumberedWorlds, progress: Progress, console: Console) -> PolicyFile:
        """Start of evolution: an imitation, a file, or the planner with priors that are learned first."""
        card: dict[str, Any] = {"seed": self.seed} | ({"workloads": self.sources} if self.sources else {})
        given = None if self.start is None else read_policy_file(file_of(self.start))
        if self.teacher is not None:
            teacher = self._watched(self.teacher) if isinstance(self.teacher, str) else self.teacher
            start = given or default_set_file()
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

            imitated = teacher.imitate_set(start, spec, on_value)
            for number, value in enumerate(values, start=1):  # how many there are to be is not known before
                self.point("imitation: log-likelihood", number, value, len(values))
            for line in imitated.agreement_lines:
                console.print(line)
            card |= {"parent": digest_of(start.to_bytes())} | imitated.facts
            return PolicyFile(spec, imitated.weights, card, imitated.priors)
        if given is not None:
            card |= {"parent": digest_of(given.to_bytes())}
            return PolicyFile(_set_spec(given), given.weights, card, given.priors)
        settings = self.settings.set
        if settings.method is SetMethod.TWIN:
            made = begin(settings, self.seed)
            return PolicyFile(made.spec, made.weights, card | {"started_from": settings.twin.start}, made.priors)
        spec = SetSpec(hidden=settings.hidden)
        task = progress.add_task("speeds", total=PRIOR_WORLDS, figure="")
        priors = learn_priors(worlds, spec, on_world=lambda: progress.advance(task))
        return PolicyFile(spec, initial_residual(spec, self.seed), card | {"prior_worlds": PRIOR_WORLDS}, priors)

    def _watched(self, scheduler: str) -> Teacher:
        episodes = endless_episodes(self.sources, self.load)
        effect = self.placement_effect
        seen = watch_in_turns(scheduler, episodes, WATCHED_EPISODES, self.speeds, effect, seed=self.seed)
        return Teacher(scheduler, seen)

    def _evolve(self, begun: PolicyFile, worlds: NumberedWorlds, progress: Progress, console: Console) -> PolicyFile:
        """Evolve the residual, or teach in a twin; the result is left out unless it wins against its start."""
        spec, stop = _set_spec(begun), deadline(self.max_seconds)
        evolves = self.settings.set.method is SetMethod.EVOLUTION
        if evolves:
            weights, done, facts = self._evolved(begun, worlds, spec, progress, stop)
        else:
            weights, done, facts = self._taught(begun, progress, stop)
        if not done:
            return begun
        validating = progress.add_task("validation", total=VALIDATION_WORLDS, figure="")
        numbers = range(FIRST_VALIDATION_WORLD, FIRST_VALIDATION_WORLD + VALIDATION_WORLDS)
        changes = changes_against(
            worlds, spec, begun.priors, weights, begun.weights, numbers, lambda: progress.advance(validating)
        )
        verdict = ResidualVerdict.over(changes)
        card = {
            **begun.card,
            **facts,
            "validation_change": round(verdict.change, 5),
            "validation_standard_error": round(verdict.standard_error, 5),
            "residual_published": verdict.publish,
        }
        if verdict.publish:
            return PolicyFile(spec, weights, card, begun.priors)
        what = "the residual" if evolves else "what was taught"
        from_nothing = evolves and self.teacher is None and self.start is None
        rest = "the planner with priors" if from_nothing else "what it began with"
        console.print(
            f"{what} changes average JCTs by {verdict.change:+.2%} ± {verdict.standard_error:.2%} on"
            f" validation worlds: it is left out, and the policy is {rest}"
        )
        return PolicyFile(spec, begun.weights, card, begun.priors)

    def _evolved(
        self, begun: PolicyFile, worlds: NumberedWorlds, spec: SetSpec, progress: Progress, stop: Callable[[], bool]
    ) -> tuple[Weights, int, dict[str, Any]]:
        """Weights, generations, and facts for the card."""
        settings = self.settings.set
        before = 0 if self.kept is None else self.kept.done  # on whose draws and worlds no other follow
        evolving = progress.add_task("evolution", total=self.steps, figure="")
        done = before

        def on_generation(generation: int, loss: float) -> None:
            nonlocal done
            done = before + generation
            progress.update(evolving, completed=done, figure=f"log JCT {loss:.3f}")
            self.point("evolution: average JCT [s]", done, math.exp(loss))

        def on_average(_: int, reached: Weights) -> None:
            self.offer(done, lambda: PolicyFile(spec, reached, begun.card, begun.priors))

        weights = evolve(
            begun.weights if self.kept is None else self.kept.policy.weights,
            log_losses(worlds, spec, begun.priors, FIRST_EVOLUTION_WORLD + before * settings.pairs),
            settings,
            self.seed + before,
            generations=max(0, self.steps - before),
            on_average=on_average,
            stop=stop,
            on_generation=on_generation,
        )
        used = settings.model_dump(include={"pairs", "sigma", "learning_rate"}) | {"seed": self.seed + before}
        return weights, done, {"generations": done, "evolution": used}

    def _taught(
        self, begun: PolicyFile, progress: Progress, stop: Callable[[], bool]
    ) -> tuple[Weights, int, dict[str, Any]]:
        """Weights, updates by replays in a twin, and facts for the card."""
        teaching = progress.add_task("twin", total=self.steps, figure="")
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
            self.offer(done, lambda: PolicyFile(spec, reached, begun.card, begun.priors))
            progress.update(teaching, completed=update, figure=f"pairs differ by {difference:.2%}")
            self.point("twin: half the log ratio of a pair", update, difference)

        settings = self.settings.set.twin
        weights = teach(
            begun,
            draw,
            settings,
            self.seed,
            updates=self.steps,
            stop=stop,
            on_update=on_update,
            reached=None if self.kept is None else (done, self.kept.policy.weights),
        )
        return weights, done, {"updates": done, "twin": settings.model_dump(mode="json")}

    def _episode(self, number: int) -> Episode:
        """World by number: the sources in turn, each with its seed moved on by the whole number."""
        source = self.sources[number % len(self.sources)]
        return self.load(source_of_episode(source, number), number)


def _set_spec(file: PolicyFile) -> SetSpec:
    """Raises BadInput if the file holds another kind of policy."""
    if not isinstance(file.spec, SetSpec):
        raise BadInput(f"--from: the file holds a {file.spec.policy!r} policy; use a {SET} policy with --policy {SET}")
    return file.spec
