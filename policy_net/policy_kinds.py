"""Which gradient belongs to which kind of policy; the one place that knows them all."""

from __future__ import annotations

from dataclasses import dataclass

from policy_net.exchange.set_spec import SetSpec
from policy_net.exchange.spec import PolicySpec, WeightSpec
from policy_net.learning.gradient import Gradients
from policy_net.learning.replay import Experience, ExperienceReplay
from policy_net.learning.residual_gradient import ResidualGradient
from policy_net.learning.settings import ActorCriticSettings, ResidualSettings


def gradients_for(
    spec: WeightSpec, actor_critic: ActorCriticSettings, residual: ResidualSettings, seed: int
) -> Gradients:
    """A computer of gradients for policies of this spec; `seed` draws its mini-batches, where it has any.

    Raises:
        TypeError: policies of this kind do not learn online.
    """
    if isinstance(spec, SetSpec):
        return ResidualGradient(spec, residual)
    if not isinstance(spec, PolicySpec):
        raise TypeError(f"policies of kind {spec.policy!r} do not learn online")
    # torch takes a second to import and threads to run: only who trains a network pays.
    import torch  # noqa: PLC0415

    from policy_net.learning.actor_critic import GradientComputer  # noqa: PLC0415

    torch.set_num_threads(1)  # agents and learner share a machine's cores; the nets are small
    return GradientComputer(spec, actor_critic, seed)


@dataclass(frozen=True, slots=True)
class Lesson:
    """What an update of a kind of policy is made of.

    Attributes:
        segments: how many runs of decision times.
        decisions: length of a run.
        every: decisions between two updates, at least.
        newest: the runs are the latest ones; otherwise drawn from all over the replay.
    """

    segments: int
    decisions: int
    every: int
    newest: bool

    def draw(self, replay: ExperienceReplay) -> list[list[Experience]]:
        """The runs of one update."""
        if self.newest:
            return replay.newest_segments(self.segments, self.decisions)
        return replay.segments(self.segments, self.decisions)


def lesson_for(spec: WeightSpec, actor_critic: ActorCriticSettings, residual: ResidualSettings) -> Lesson:
    """What updates of policies of this spec are made of.

    A network has to learn from the same experience many times. A residual has so few parameters, and a decision says
    so little about them, that from a second look on it learns the noise by heart: docs/experiments.md has the figures.
    """
    if isinstance(spec, SetSpec):
        return Lesson(residual.segments, residual.segment_decisions, residual.segment_decisions, newest=True)
    return Lesson(actor_critic.segments, actor_critic.segment_decisions, 1, newest=False)
