"""Space of settings that tuning searches, for each kind of policy: bounds, scale and default of every parameter.

A parameter is a setting of `training.settings`, under a name of its own. Defaults are those of training; every study
begins with them. All of a kind's settings are here but those in `NOT_SEARCHED`, which a test holds.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from types import MappingProxyType
from typing import Any

from foundation.text import nearest
from policy_net.errors import BadInput
from policy_net.laboratory.training import SetMethod
from policy_net.laboratory.training.settings import DEFAULT_IMITATION_STEPS, TrainingSettings

Value = float | int | str | bool
Values = Mapping[str, Value]
"""One value for each parameter that varies."""

TEACHERS = ("drf", "fifo", "las", "marginal", "optimus", "srtf", "tetris")
"""Schedulers that a warm start may imitate. Those that need the true speeds are left out: no cluster has them."""

NOT_SEARCHED: Mapping[str, str] = MappingProxyType(
    {
        "dl2.imitation.micro_states": "a trial has a fixed number of its own, so that all cost as much",
        "dl2.actor_critic.minimum_effective_samples": "pauses learning; never better than learning",
    }
)
"""Settings of the kinds that are not searched, and why."""


@dataclass(frozen=True, slots=True)
class TunedParameter:
    """One setting and the values that it may have.

    Attributes:
        name: as `--vary` takes it.
        path: the setting's place in a training file.
        low, high: bounds, both included, where it is a number; whole numbers stand for a whole number.
        log: whether it is searched by its logarithm.
        choices: its values, where it is no number.
    """

    name: str
    path: tuple[str, ...]
    low: float = 0
    high: float = 0
    log: bool = False
    choices: tuple[Value, ...] = ()

    @property
    def whole(self) -> bool:
        """Whether its values are whole numbers."""
        return isinstance(self.low, int) and isinstance(self.high, int)

    def default(self, settings: TrainingSettings) -> Value:
        """Its value in some settings."""
        found: Any = settings
        for part in self.path:
            found = getattr(found, part)
        return found.value if hasattr(found, "value") else found  # type: ignore[no-any-return]  # of an enumeration


def _dl2(imitation_steps: int) -> tuple[TunedParameter, ...]:
    least = max(1, imitation_steps // 8)
    actor_critic, imitation = ("dl2", "actor_critic"), ("dl2", "imitation")
    return (
        TunedParameter("neurons", ("dl2", "neurons"), 32, 512, log=True),
        TunedParameter("layers", ("dl2", "layers"), 1, 3),
        TunedParameter("jobs_per_batch", ("dl2", "jobs_per_batch"), 5, 40, log=True),
        TunedParameter("bundles", ("dl2", "bundles"), choices=(True, False)),
        TunedParameter("imitate", ("dl2", "imitate"), choices=TEACHERS),
        TunedParameter("imitation_steps", ("dl2", "imitation_steps"), least, max(imitation_steps, least + 1), log=True),
        TunedParameter("imitation_learning_rate", (*imitation, "learning_rate"), 5e-4, 1e-2, log=True),
        TunedParameter("imitation_batch", (*imitation, "batch_samples"), 64, 1024, log=True),
        TunedParameter(
            "imitation_loss", (*imitation, "loss"), choices=("cross-entropy", "mean-square", "absolute-difference")
        ),
        TunedParameter("softness", (*imitation, "softness"), 0.0, 0.5),
        TunedParameter("learning_rate", ("dl2", "learning_rate"), 3e-5, 3e-3, log=True),
        TunedParameter("exploration", ("dl2", "exploration"), 0.0, 0.5),
        TunedParameter("replay", (*actor_critic, "replay"), choices=("uniform", "prioritised", "newest")),
        TunedParameter("replay_samples", ("dl2", "replay_samples"), 2048, 65536, log=True),
        TunedParameter("reward", (*actor_critic, "reward"), choices=("slot-utility", "paper", "own-job")),
        # Of the two rewards other than the slot's utility, which has each job's mean over a few decisions instead.
        TunedParameter("baseline", (*actor_critic, "baseline"), choices=("critic", "moving-average")),
        TunedParameter("discount", (*actor_critic, "discount"), 0.5, 0.99),
        TunedParameter("entropy_weight", (*actor_critic, "entropy_weight"), 1e-3, 0.1, log=True),
        TunedParameter("shared_credit", (*actor_critic, "shared_credit"), 0.0, 1.0),
        TunedParameter("value_weight", (*actor_critic, "value_weight"), 0.1, 1.0),
        TunedParameter("batch_samples", (*actor_critic, "batch_samples"), 128, 2048, log=True),
        TunedParameter("segments", (*actor_critic, "segments"), 1, 12, log=True),
        TunedParameter("segment_decisions", (*actor_critic, "segment_decisions"), 2, 20, log=True),
    )


_HIDDEN = TunedParameter("neurons", ("set", "neurons"), choices=(0, 8, 16))
_SET = {
    SetMethod.EVOLUTION: (
        _HIDDEN,
        TunedParameter("pairs", ("set", "pairs"), 4, 32, log=True),
        TunedParameter("sigma", ("set", "sigma"), 0.02, 0.6, log=True),
        TunedParameter("learning_rate", ("set", "learning_rate"), 0.005, 0.3, log=True),
    ),
    SetMethod.TWIN: (
        TunedParameter("start", ("set", "twin", "start"), choices=("set", "planner")),
        _HIDDEN,  # of the planner's network; the shipped one has none
        TunedParameter("prices", ("set", "twin", "prices"), choices=(True, False)),
        TunedParameter("sessions", ("set", "twin", "sessions"), choices=(True, False)),
        TunedParameter("pairs", ("set", "twin", "pairs"), 1, 32, log=True),
        TunedParameter("perturbation", ("set", "twin", "perturbation"), 0.2, 3.0, log=True),
        TunedParameter("largest_difference", ("set", "twin", "largest_difference"), 0.02, 0.5, log=True),
        TunedParameter("window_jobs", ("set", "twin", "window_jobs"), 100, 1000, log=True),
        TunedParameter("speed_spread", ("set", "twin", "speed_spread"), 0.0, 0.5),
        TunedParameter("learning_rate", ("set", "twin", "learning_rate"), 0.02, 1.5, log=True),
        TunedParameter("decay_share", ("set", "twin", "decay_share"), 0.1, 10.0, log=True),
        TunedParameter("trust_radius", ("set", "twin", "trust_radius"), 0.5, 20.0, log=True),
        TunedParameter("average_updates", ("set", "twin", "average_updates"), 1.0, 200.0, log=True),
    ),
}


@dataclass(frozen=True, slots=True)
class Space:
    """What a study searches; the rest stays at its default.

    Attributes:
        base: settings that the values of a trial are put into.
    """

    policy: str
    parameters: tuple[TunedParameter, ...]
    base: TrainingSettings

    @property
    def defaults(self) -> dict[str, Value]:
        """The values that training has without any tuning."""
        return {item.name: item.default(self.base) for item in self.parameters}

    def settings(self, values: Values) -> TrainingSettings:
        """Settings of training with these values."""
        content = self.base.model_dump(mode="json")
        for item in self.parameters:
            *sections, key = item.path
            section = content
            for name in sections:
                section = section[name]
            section[key] = values[item.name]
        return TrainingSettings.model_validate(content)

    def to_json(self) -> dict[str, Any]:
        """What two studies of the same space agree in."""
        found = [asdict(item) | {"path": list(item.path), "choices": list(item.choices)} for item in self.parameters]
        return {"policy": self.policy, "parameters": found, "base": self.base.model_dump(mode="json")}


def space_of(
    policy: str,
    vary: Sequence[str] = (),
    imitation_steps: int = DEFAULT_IMITATION_STEPS,
    method: SetMethod = SetMethod.TWIN,
    imitate: str | None = None,
) -> Space:
    """The space of a kind of policy.

    Args:
        policy: dl2 or set.
        vary: names of the only parameters that vary; all do if there is none.
        imitation_steps: the most mini-batches of a warm start, and the default.
        method: how a `set` policy is trained.
        imitate: the one scheduler that every trial imitates; `drf` is the default of several if there is none.

    Raises:
        BadInput: a kind of policy or a parameter that nobody knows.
    """
    known = {"dl2": _dl2(imitation_steps), "set": _SET[method]}.get(policy)
    if known is None:
        raise BadInput(f"--policy {policy}: use dl2 or set")
    if imitate is not None:
        known = tuple(item for item in known if item.name != "imitate")
    dl2 = {"imitation_steps": imitation_steps, "imitate": imitate or TEACHERS[0]}
    base = TrainingSettings.model_validate({"policy": policy, "dl2": dl2, "set": {"method": method}})
    return Space(policy, _chosen(known, vary, policy), base)


def _chosen(known: Sequence[TunedParameter], vary: Iterable[str], policy: str) -> tuple[TunedParameter, ...]:
    names = [item.name for item in known]
    wanted = set(vary)
    for name in sorted(wanted - set(names)):
        near = nearest(name, names)
        meant = f"did you mean {near}?" if near else f"use {', '.join(names)}"
        raise BadInput(f"--vary {name}: a {policy} policy has no such parameter; {meant}")
    return tuple(item for item in known if not wanted or item.name in wanted)
