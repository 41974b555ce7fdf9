"""`policy-net train --policy set`: priors, residual and verdict, with progress on the terminal."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

from policy_net.domain import PlacementEffect, SpeedModel
from policy_net.exchange.policy_file import PolicyFile
from policy_net.exchange.set_spec import SET, SetSpec
from policy_net.learning.episodes import Episode, source_of_episode
from policy_net.learning.evolution import EvolutionSettings, evolve
from policy_net.learning.set_training import (
    FIRST_VALIDATION_WORLD,
    PRIOR_WORLDS,
    VALIDATION_WORLDS,
    Verdict,
    Worlds,
    changes_against_planner,
    learn_priors,
    log_losses,
)
from policy_net.set_policy.residual import initial_residual

FIRST_EVOLUTION_WORLD = 1000
"""Worlds before it are those of the priors."""


@dataclass(frozen=True)
class SetTraining:
    """What the command was asked for.

    Attributes:
        load: makes an episode of a source and a round number.
        generations: of evolution; 0 trains the priors alone.
    """

    sources: list[str]
    load: Callable[[str, int], Episode]
    speeds: SpeedModel
    placement_effect: PlacementEffect | None
    seed: int
    generations: int
    max_seconds: float | None

    def run(self, console: Console) -> PolicyFile:
        """Train; the card says from what, and how the residual did on the validation worlds."""
        worlds = Worlds(self._episode, self.speeds, self.placement_effect)
        spec, settings = SetSpec(), EvolutionSettings(seed=self.seed)
        card: dict[str, Any] = {"workloads": self.sources, "seed": self.seed, "prior_worlds": PRIOR_WORLDS}
        weights = initial_residual(spec, self.seed)
        with Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            TextColumn("{task.fields[figure]}"),
            TimeRemainingColumn(),
            console=console,
            disable=not console.is_terminal,
        ) as progress:
            task = progress.add_task("speeds", total=PRIOR_WORLDS, figure="")
            priors = learn_priors(worlds, spec, on_world=lambda: progress.advance(task))
            deadline = None if self.max_seconds is None else time.monotonic() + self.max_seconds
            evolving = progress.add_task("evolution", total=self.generations, figure="")
            done = 0

            def on_generation(generation: int, loss: float) -> None:
                nonlocal done
                done = generation
                progress.update(evolving, completed=generation, figure=f"log JCT {loss:.3f}")

            weights = evolve(
                weights,
                log_losses(worlds, spec, priors, FIRST_EVOLUTION_WORLD),
                settings,
                generations=self.generations,
                stop=lambda: deadline is not None and time.monotonic() > deadline,
                on_generation=on_generation,
            )
            if done:
                validating = progress.add_task("validation", total=VALIDATION_WORLDS, figure="")
                numbers = range(FIRST_VALIDATION_WORLD, FIRST_VALIDATION_WORLD + VALIDATION_WORLDS)
                verdict = Verdict.over(
                    changes_against_planner(
                        worlds, spec, priors, weights, numbers, lambda: progress.advance(validating)
                    )
                )
                card |= {
                    "generations": done,
                    "evolution": dataclasses.asdict(settings),
                    "validation_change": round(verdict.change, 5),
                    "validation_standard_error": round(verdict.standard_error, 5),
                    "residual_published": verdict.publish,
                }
                if not verdict.publish:
                    weights = initial_residual(spec, self.seed)
                    console.print(
                        f"the residual changes average JCTs by {verdict.change:+.2%} ± {verdict.standard_error:.2%} on"
                        " validation worlds: it is left out, and the policy is the planner with priors"
                    )
        console.print(f"{SET}: {spec.parameter_count} parameters, priors of {len({p.job_type for p in priors})} types")
        return PolicyFile(spec, weights, card, priors)

    def _episode(self, number: int) -> Episode:
        """World by number: the sources in turn, each with its seed moved on by the whole number."""
        source = self.sources[number % len(self.sources)]
        return self.load(source_of_episode(source, number), number)
