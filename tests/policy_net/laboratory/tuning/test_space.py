from collections.abc import Iterator
from typing import Any

import pytest
from pydantic import BaseModel

import policy_net.baselines  # noqa: F401  (registers the names that can be imitated)
from policy_net.errors import BadInput
from policy_net.laboratory.training.settings import TrainingSettings
from policy_net.laboratory.tuning.space import TEACHERS, Space, space_of
from policy_net.policy import policy_names
from policy_net.settings_problems import settings_of

SPACES = {
    "dl2": space_of("dl2", imitation_steps=4000),
    "set": space_of("set"),
}
each = pytest.mark.parametrize("space", SPACES.values(), ids=SPACES)


@each
def test_the_defaults_are_those_of_training_and_lie_within_what_is_searched(space: Space) -> None:
    usual = TrainingSettings.model_validate(
        {
            "policy": space.policy,
            "dl2": {"method": "actor-critic", "imitate": "drf"},
            "set": {"method": space.base.set.method},
        }
    )
    found = space.settings(space.defaults)
    assert getattr(found, space.policy) == getattr(usual, space.policy)
    for item in space.parameters:
        value = space.defaults[item.name]
        assert value in item.choices if item.choices else item.low <= float(value) <= item.high


@each
def test_every_bound_is_a_setting_that_training_takes(space: Space) -> None:
    for item in space.parameters:
        for value in item.choices or (item.low, item.high):
            settings = space.settings(space.defaults | {item.name: value})
            assert item.default(settings) == value


def leaves(section: BaseModel, path: tuple[str, ...]) -> Iterator[str]:
    for name in settings_of(type(section)):
        value: Any = getattr(section, name)
        if isinstance(value, BaseModel):
            yield from leaves(value, (*path, name))
        else:
            yield ".".join((*path, name))


def test_every_setting_of_training_but_those_of_groups_is_searched() -> None:
    searched = {".".join(item.path) for space in SPACES.values() for item in space.parameters}
    settings = TrainingSettings()
    known = {*leaves(settings.dl2, ("dl2",)), *leaves(settings.set, ("set",))}
    of_groups = {name for name in known if name.startswith("dl2.groups.")}
    assert searched == known - of_groups - {"set.method", "dl2.method"}


def test_whom_a_trial_may_imitate_is_somebody_and_needs_no_true_speeds() -> None:
    assert set(TEACHERS) <= set(policy_names())
    assert not {name for name in TEACHERS if "true" in name or name == "oracle"}
    one = space_of("dl2", imitate="optimus")
    assert "imitate" not in one.defaults
    assert one.settings(one.defaults).dl2.imitate == "optimus"


def test_what_does_not_vary_stays_at_its_default() -> None:
    space = space_of("dl2", ["layers", "learning_rate"], imitation_steps=100)
    assert list(space.defaults) == ["layers", "learning_rate"]
    settings = space.settings({"layers": 3, "learning_rate": 0.001})
    assert settings.dl2.hidden == (256, 256, 256)
    assert settings.dl2.imitation_steps == 100


@pytest.mark.parametrize(
    ("policy", "vary", "says"),
    [
        ("dl2", "learnin_rate", "did you mean learning_rate?"),
        ("set", "layers", "a set policy has no such parameter"),
        ("drf", "layers", "use dl2 or set"),
    ],
)
def test_what_nobody_knows_is_one_line(policy: str, vary: str, says: str) -> None:
    with pytest.raises(BadInput) as refusal:
        space_of(policy, [vary])
    assert says in str(refusal.value)
