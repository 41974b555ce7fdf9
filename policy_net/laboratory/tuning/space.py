"""Space of settings that tuning searches, for each kind of policy: bounds, scale and default of every parameter.

A parameter is a setting of `training.settings`, under a name of its own. Defaults are those of training; every study
begins with them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from foundation.text import nearest
from policy_net.errors import BadInput
from policy_net.laboratory.training.settings import DEFAULT_IMITATION_STEPS, TrainingSettings

Value = float | int | str
Values = Mapping[str, Value]
"""One value for each parameter that varies."""


@dataclass(frozen=True, slots=True)
class Parameter:
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


def _dl2(imitation_steps: int) -> tuple[Parameter, ...]:
    least = max(1, imitation_steps // 8)
    return (
        Parameter("neurons", ("dl2", "neurons"), 32, 512, log=True),
        Parameter("layers", ("dl2", "layers"), 1, 3),
        Parameter("learning_rate", ("dl2", "learning_rate"), 3e-5, 3e-3, log=True),
        Parameter("exploration", ("dl2", "exploration"), 0.0, 0.5),
        Parameter("replay_samples", ("dl2", "replay_samples"), 2048, 65536, log=True),
        Parameter("imitation_steps", ("dl2", "imitation_steps"), least, max(imitation_steps, least + 1), log=True),
        Parameter("imitation_learning_rate", ("dl2", "imitation", "learning_rate"), 5e-4, 1e-2, log=True),
        # The paper's reward has a critic for its baseline, the slot's utility each job's mean over a few decisions.
        Parameter("reward", ("dl2", "actor_critic", "reward"), choices=("slot-utility", "paper")),
        Parameter("discount", ("dl2", "actor_critic", "discount"), 0.5, 0.99),
        Parameter("entropy_weight", ("dl2", "actor_critic", "entropy_weight"), 1e-3, 0.1, log=True),
        Parameter("shared_credit", ("dl2", "actor_critic", "shared_credit"), 0.0, 1.0),
        Parameter("value_weight", ("dl2", "actor_critic", "value_weight"), 0.1, 1.0),
        Parameter("batch_samples", ("dl2", "actor_critic", "batch_samples"), 128, 2048, log=True),
    )


_SET = (
    Parameter("neurons", ("set", "neurons"), choices=(0, 8, 16)),
    Parameter("pairs", ("set", "pairs"), 4, 32, log=True),
    Parameter("sigma", ("set", "sigma"), 0.02, 0.6, log=True),
    Parameter("learning_rate", ("set", "learning_rate"), 0.005, 0.3, log=True),
)


@dataclass(frozen=True, slots=True)
class Space:
    """What a study searches; the rest stays at its default.

    Attributes:
        base: settings that the values of a trial are put into.
    """

    policy: str
    parameters: tuple[Parameter, ...]
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


def space_of(policy: str, vary: Sequence[str] = (), imitation_steps: int = DEFAULT_IMITATION_STEPS) -> Space:
    """The space of a kind of policy.

    Args:
        policy: dl2 or set.
        vary: names of the only parameters that vary; all do if there is none.
        imitation_steps: the most mini-batches of a warm start, and the default.

    Raises:
        BadInput: a kind of policy or a parameter that nobody knows.
    """
    known = {"dl2": _dl2(imitation_steps), "set": _SET}.get(policy)
    if known is None:
        raise BadInput(f"--policy {policy}: use dl2 or set")
    base = TrainingSettings.model_validate({"policy": policy, "dl2": {"imitation_steps": imitation_steps}})
    return Space(policy, _chosen(known, vary, policy), base)


def _chosen(known: Sequence[Parameter], vary: Iterable[str], policy: str) -> tuple[Parameter, ...]:
    names = [item.name for item in known]
    wanted = set(vary)
    for name in sorted(wanted - set(names)):
        near = nearest(name, names)
        meant = f"did you mean {near}?" if near else f"use {', '.join(names)}"
        raise BadInput(f"--vary {name}: a {policy} policy has no such parameter; {meant}")
    return tuple(item for item in known if not wanted or item.name in wanted)
