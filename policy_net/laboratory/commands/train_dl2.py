"""Training behind `policy-net train --policy dl2`: a warm start, then groups of decisions or actor-critic."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
from rich.console import Console
from rich.progress import Progress

from foundation.clocks import deadline
from foundation.figures import duration
from policy_net.dl2.network import initial_weights
from policy_net.dl2.policy import LearnedPolicy
from policy_net.errors import BadInput
from policy_net.exchange.policy_file import PolicyFile, digest_of, read_policy_file
from policy_net.exchange.shipped import file_of
from policy_net.exchange.spec import PolicySpec, Weights
from policy_net.laboratory.catalogue import MODEL_NAMES
from policy_net.laboratory.commands.training_order import TrainingOrder
from policy_net.laboratory.commands.training_progress import training_progress
from policy_net.laboratory.training import Dl2Method
from policy_net.laboratory.training.group_training import GroupLearner, GroupUpdate, mean_jct_seconds, train_in_groups
from policy_net.laboratory.training.imitation import demonstrate, imitate, watch_in_turns
from policy_net.laboratory.training.offline import (
    FAILURES,
    Episode,
    check_finite,
    endless_episodes,
    source_of_episode,
    train_offline,
)
from policy_net.laboratory.training.teacher import Teacher
from policy_net.twin.library import notice

DEMONSTRATED_EPISODES = 20
"""Workloads watched under the teacher; with 8 the warm start is 2% further from its teacher."""


FIRST_VALIDATION_ROUND = 1_000_000
VALIDATIONS = 12
"""Workloads that a training in groups is validated on, of rounds of the sources that it never comes to."""


class Dl2Training(TrainingOrder):
    """The order of a `dl2` policy."""

    def run(self, console: Console) -> PolicyFile:
        """Train; the card has the start and the steps.

        Raises:
            BadInput: the start (which may lack the critic), the log or the learning rate cannot be used.
        """
        settings = self.settings.dl2
        spec, weights, parent = self._beginning()
        if settings.method is Dl2Method.ACTOR_CRITIC:
            spec.need_critic()
        elif self.steps and (slow := notice()) is not None:
            console.print(slow, soft_wrap=True)
        card: dict[str, Any] = {"workloads": self.sources, "seed": self.seed, "parent": parent}
        done = 0
        with training_progress(console) as progress:
            if self.kept is not None:
                spec, weights, done = self.kept.policy.network_spec, self.kept.policy.weights, self.kept.done
                card = {**self.kept.start.card, "resumed_at": done}
            elif isinstance(self.teacher, Teacher):
                on_step = self._imitating(self.teacher.name, progress)
                imitated = self.teacher.imitate_dl2(
                    weights, spec, settings.imitation_steps, self.seed, on_step, settings.imitation
                )
                for line in imitated.agreement_lines:
                    console.print(line)
                weights = imitated.weights
                card |= imitated.facts
            elif self.teacher is not None:
                weights = self._warm_start(self.teacher, weights, spec, progress)
                card |= {"imitated": self.teacher, "imitation_steps": settings.imitation_steps}
            if self.steps:
                begun = PolicyFile(spec, weights, card)
                self.keep_start(begun)
                learn = self._compare if settings.method is Dl2Method.GROUPS else self._reinforce
                weights, facts = learn(begun, done, progress)
                card |= facts
        return PolicyFile(spec, weights, card)

    def _beginning(self) -> tuple[PolicySpec, Weights, str | None]:
        if self.start is None:
            spec = self.settings.dl2.spec(MODEL_NAMES, self.jobs_per_batch)
            return spec, initial_weights(spec, self.seed), None
        content = read_policy_file(file_of(self.start))
        spec = content.network_spec
        if self.jobs_per_batch not in (None, spec.jobs_per_batch):
            raise BadInput(
                f"--jobs-per-batch {self.jobs_per_batch}: {self.start} was made for {spec.jobs_per_batch}; leave it out"
            )
        return spec, content.weights, digest_of(content.to_bytes())

    def _warm_start(self, teacher: str, weights: Weights, spec: PolicySpec, progress: Progress) -> Weights:
        settings = self.settings.dl2
        watching = progress.add_task(f"watching {teacher}", total=DEMONSTRATED_EPISODES, figure="")
        seen = watch_in_turns(
            teacher,
            endless_episodes(self.sources, self.load),
            DEMONSTRATED_EPISODES,
            self.speeds,
            self.placement_effect,
            seed=self.seed,
            on_watched=lambda: progress.advance(watching),
        )
        shown = demonstrate(seen, spec, settings.imitation, self.seed)
        on_step, steps = self._imitating(teacher, progress), settings.imitation_steps
        return imitate(weights, spec, shown, settings.imitation, steps=steps, seed=self.seed, on_step=on_step)

    def _imitating(self, teacher: str, progress: Progress) -> Callable[[int, float], None]:
        steps = self.settings.dl2.imitation_steps
        task = progress.add_task(f"imitating {teacher}", total=steps, figure="")
        taken = itertools.count(1)

        def on_step(_: int, loss: float) -> None:
            progress.update(task, advance=1, figure=f"cross-entropy {loss:.3f}")
            self.point("imitation: cross-entropy", next(taken), loss, steps)

        return on_step

    def _compare(self, begun: PolicyFile, before: int, progress: Progress) -> tuple[Weights, dict[str, Any]]:
        """Learn from groups of decisions; weights, and facts for the card.

        Args:
            before: updates of an earlier run, whose seeds and episodes are not used again.
        """
        settings, spec = self.settings.dl2.groups, begun.network_spec
        task = progress.add_task("groups of decisions", total=self.steps, completed=before, figure="")
        updates, figure = before, ""
        apart = list(itertools.islice(self._episodes(FIRST_VALIDATION_ROUND), max(VALIDATIONS, len(self.sources))))

        def validate(weights: Weights) -> float:
            policy = LearnedPolicy(spec, weights)
            return mean_jct_seconds(policy, apart, self.speeds, self.placement_effect)

        def on_step(done: int, reached: Weights, met: GroupUpdate) -> None:
            nonlocal updates
            updates = done
            progress.update(task, completed=done, figure=figure)
            self.offer(done, lambda: PolicyFile(spec, reached.copy(), begun.card))
            self.point("groups: utility of a state", done, met.utility)

        def on_validated(done: int, cost: float) -> None:
            nonlocal figure
            figure = f"average JCT on validation {duration(cost)}"
            self.point("groups: average JCT on validation [s]", done, cost)

        episodes = self._episodes(before)
        effect, seed = self.placement_effect, self.seed + before
        with self._failures_said(settings.learning_rate):
            learner = GroupLearner(spec, begun.weights, episodes, self.speeds, settings, seed, effect)
            weights, cost = train_in_groups(
                learner,
                validate,
                steps=self.steps,
                before=before,
                stop=deadline(self.max_seconds),
                on_step=on_step,
                on_validated=on_validated,
            )
        return weights, {
            "updates": updates,
            "method": Dl2Method.GROUPS.value,
            "learning_rate": settings.learning_rate,
            "validation_avg_jct_seconds": round(cost, 3) if math.isfinite(cost) else None,
        }

    def _episodes(self, first: int) -> Iterator[Episode]:
        """The sources again and again, from the round of this number on."""

        def load_next(source: str, number: int) -> Episode:
            return self.load(source_of_episode(source, first), first + number)

        return endless_episodes(self.sources, load_next)

    @contextmanager
    def _failures_said(self, learning_rate: float) -> Iterator[None]:
        """Raise BadInput where a training fails by its settings."""
        with np.errstate(over="ignore", invalid="ignore"):  # what comes of it is said in one line
            try:
                yield
            except FloatingPointError as error:
                raise BadInput(
                    f"--learning-rate {learning_rate:g}: {FAILURES[FloatingPointError]}; use a smaller one"
                ) from error
            except tuple(FAILURES) as error:
                raise BadInput(
                    f"--workload: {FAILURES[type(error)]}; train on other workloads, or more nodes"
                ) from error

    def _reinforce(self, begun: PolicyFile, before: int, progress: Progress) -> tuple[Weights, dict[str, Any]]:
        """Actor-critic in simulation; weights, and facts for the card.

        Args:
            before: updates of an earlier run, whose seeds and episodes are not used again.
        """
        settings, spec = self.settings.dl2, begun.network_spec
        task = progress.add_task("actor-critic", total=self.steps, completed=before, figure="")
        updates = before

        def on_step(done: int, reached: Weights) -> None:
            nonlocal updates
            updates = before + done
            progress.update(task, completed=updates)
            self.offer(updates, lambda: PolicyFile(spec, reached.copy(), begun.card))

        def on_reward(done: int, reward: float) -> None:
            kind = settings.actor_critic.reward.value
            self.point(f"actor-critic: reward of a decision ({kind})", before + done, reward)

        with self._failures_said(settings.learning_rate):
            weights = train_offline(
                begun.weights,
                spec,
                self._episodes(before),
                self.speeds,
                settings,
                self.seed + before,
                steps=max(0, self.steps - before),
                placement_effect=self.placement_effect,
                stop=deadline(self.max_seconds),
                on_step=on_step,
                on_reward=on_reward,
            )
            check_finite(weights)
        reward = settings.actor_critic.reward.value
        return weights, {"updates": updates, "learning_rate": settings.learning_rate, "reward": reward}
