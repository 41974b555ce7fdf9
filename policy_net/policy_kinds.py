"""Kinds of trained policies, `dl2` and `set`, and what each has: its policy in a file, its gradient, its updates.

The one place that knows them all.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from foundation.files import is_file
from policy_net.dl2.policy import policy_of
from policy_net.domain import PolicyContext
from policy_net.errors import BadInput
from policy_net.exchange.policy_file import read_policy_file
from policy_net.exchange.spec import PolicySpec, SetSpec, WeightSpec
from policy_net.learning.gradient import Gradients
from policy_net.learning.replay import Experience, ExperienceReplay
from policy_net.learning.residual_gradient import ResidualGradient
from policy_net.learning.settings import ActorCriticSettings, ReplayDraw, ResidualSettings
from policy_net.policy import SchedulerPolicy, build_policy, policy_names
from policy_net.set_policy.policy import set_policy_of


def load_policy(name_or_path: str, context: PolicyContext) -> SchedulerPolicy:
    """A registered policy by its name, or a trained one from its file.

    Raises:
        UnknownPolicy: neither a name nor a file.
        PolicyFileError: the file cannot be used.
    """
    if name_or_path in policy_names():
        return build_policy(name_or_path, context)
    path = Path(name_or_path)
    if not is_file(path):
        return build_policy(name_or_path, context)  # which says what it might have been
    content = read_policy_file(path)
    if isinstance(content.spec, SetSpec):
        return set_policy_of(content, path.name)
    return policy_of(content, context.seed, path.name)


def gradients_for(
    spec: WeightSpec, actor_critic: ActorCriticSettings, residual: ResidualSettings, seed: int
) -> Gradients:
    """A computer of gradients for policies of this spec; `seed` draws its mini-batches, where it has any.

    Raises:
        TypeError: policies of this kind do not learn online.
        BadInput: they learn with PyTorch, and it is not installed; or from replays alone.
    """
    if isinstance(spec, SetSpec):
        return ResidualGradient(spec, residual)
    if not isinstance(spec, PolicySpec):
        raise TypeError(f"policies of kind {spec.policy!r} do not learn online")
    spec.need_critic()
    # torch takes a second to import and threads to run: only who trains a network pays.
    try:
        import torch  # noqa: PLC0415
    except ModuleNotFoundError as error:
        raise BadInput(
            f"learning a {spec.policy!r} policy needs PyTorch, which is not installed here: install it (on Kubernetes, "
            "use the image fedl2-trainer), or set learning.enabled to false"
        ) from error

    from policy_net.learning.actor_critic import GradientComputer  # noqa: PLC0415

    torch.set_num_threads(1)  # agents and learner share a machine's cores; the nets are small
    return GradientComputer(spec, actor_critic, seed)


@dataclass(frozen=True, slots=True)
class UpdateSchedule:
    """Updates of a kind of policy: how often they come, and what experience each is made of.

    Attributes:
        every: decisions between two updates, at least.
        by: how the runs are drawn from the replay.
    """

    segments: int
    decisions: int
    every: int
    by: ReplayDraw

    def draw(self, replay: ExperienceReplay) -> list[list[Experience]]:
        """The runs of one update."""
        return replay.draw(self.by, self.segments, self.decisions)


def update_schedule_for(
    spec: WeightSpec, actor_critic: ActorCriticSettings, residual: ResidualSettings
) -> UpdateSchedule:
    """What updates of policies of this spec are made of.

    A network has to learn from the same experience many times. A residual has so few parameters, and a decision says
    so little about them, that from a second look on it fits the noise: docs/experiments.md has the figures.
    """
    if isinstance(spec, SetSpec):
        return UpdateSchedule(
            residual.segments, residual.segment_decisions, residual.segment_decisions, ReplayDraw.NEWEST
        )
    return UpdateSchedule(actor_critic.segments, actor_critic.segment_decisions, 1, actor_critic.replay)
