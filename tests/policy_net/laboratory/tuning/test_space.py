import pytest

from policy_net.errors import BadInput
from policy_net.laboratory.training.settings import TrainingSettings
from policy_net.laboratory.tuning.space import space_of


@pytest.mark.parametrize("policy", ["dl2", "set"])
def test_the_defaults_are_those_of_training_and_lie_within_what_is_searched(policy: str) -> None:
    space = space_of(policy, imitation_steps=4000)
    assert space.settings(space.defaults) == TrainingSettings(policy=policy)
    for item in space.parameters:
        value = space.defaults[item.name]
        assert value in item.choices if item.choices else item.low <= float(value) <= item.high


@pytest.mark.parametrize("policy", ["dl2", "set"])
def test_every_bound_is_a_setting_that_training_takes(policy: str) -> None:
    space = space_of(policy)
    for item in space.parameters:
        for value in item.choices or (item.low, item.high):
            settings = space.settings(space.defaults | {item.name: value})
            assert item.default(settings) == value


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
