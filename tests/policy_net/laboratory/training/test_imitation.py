import numpy as np
import pytest

import policy_net.baselines  # noqa: F401  (registers drf)
from policy_net.dl2.network import initial_weights
from policy_net.dl2.policy import LearnedPolicy
from policy_net.domain import PolicyContext
from policy_net.exchange.spec import OTHER_TYPE, PolicySpec
from policy_net.laboratory.catalogue import MODEL_NAMES
from policy_net.laboratory.simulation.environment import Environment
from policy_net.laboratory.simulation.replay import replay
from policy_net.laboratory.speeds.speed import default_speeds
from policy_net.laboratory.training.imitation import demonstrate, imitate, watch
from policy_net.laboratory.training.offline import endless_episodes, source_of_episode, train_offline
from policy_net.laboratory.training.settings import Dl2Settings
from policy_net.laboratory.workloads.sources import load_workload
from policy_net.laboratory.workloads.workload import WorkloadOptions
from policy_net.learning.settings import ActorCriticSettings, ImitationLoss, ImitationSettings
from policy_net.policy import build_policy

SPEEDS = default_speeds()
SPEC = PolicySpec(jobs_per_batch=12, job_types=(OTHER_TYPE, *MODEL_NAMES), hidden=(48, 48))
ENVIRONMENT = Environment(nodes=6)
MIX = "wlm+dssm+inception-bn"


def make_workload(seed: int):
    return load_workload(f"dl2:jobs=12,mix={MIX},seed={seed}", WorkloadOptions(speeds=SPEEDS))


def demonstrations(softness: float = 0.2):
    seen = []
    for seed in range(4):
        seen += watch(build_policy("drf", PolicyContext()), make_workload(seed), ENVIRONMENT, SPEEDS)
    return demonstrate(seen, SPEC, ImitationSettings(softness=softness), 0)


def test_targets_are_distributions_over_what_is_admissible() -> None:
    shown = demonstrations()
    np.testing.assert_allclose(shown.targets_MA.sum(axis=1), 1.0, rtol=1e-5)
    assert not shown.targets_MA[~shown.masks_MA].any()
    # Soft: everything that is admissible has a share.
    assert (shown.targets_MA[shown.masks_MA] > 0).all()


def test_without_softness_only_what_helps_the_least_served_is_a_target() -> None:
    shown = demonstrations(softness=0.0)
    bundles = shown.targets_MA[:, 2:-1:3].sum(axis=1)
    void = shown.targets_MA[:, -1]
    # DRF gives bundles; what is left at the end may be a single task, or nothing.
    assert np.mean(bundles + void > 0.99) > 0.9


def test_imitating_comes_nearer_to_the_teacher_than_not() -> None:
    shown = demonstrations()
    losses: list[float] = []
    weights = imitate(
        initial_weights(SPEC, 0),
        SPEC,
        shown,
        ImitationSettings(),
        steps=400,
        seed=0,
        on_step=lambda _, loss: losses.append(loss),
    )
    assert np.mean(losses[-20:]) < 0.8 * losses[0]
    held_out = make_workload(99)
    teacher = replay(held_out, ENVIRONMENT, build_policy("drf", PolicyContext()), SPEEDS).to_json()
    student = replay(held_out, ENVIRONMENT, LearnedPolicy(SPEC, weights), SPEEDS).to_json()
    assert student["completed"] == teacher["completed"] == 12
    assert student["avg_jct_seconds"] < 2.0 * teacher["avg_jct_seconds"]


def test_imitation_is_the_same_for_the_same_seed() -> None:
    shown = demonstrations()
    first, second, other = (
        imitate(initial_weights(SPEC, 0), SPEC, shown, ImitationSettings(), steps=5, seed=seed) for seed in (1, 1, 2)
    )
    assert first.tobytes() == second.tobytes()
    assert first.tobytes() != other.tobytes()


def test_offline_training_is_the_same_for_the_same_seed_and_rate_zero_changes_nothing() -> None:
    start = initial_weights(SPEC, 0)

    def episodes():
        return endless_episodes(["dl2:jobs=6,seed=1"], lambda source, _: (make_workload(3), ENVIRONMENT))

    def train(rate: float, seed: int):
        return train_offline(start, SPEC, episodes(), SPEEDS, Dl2Settings(learning_rate=rate), seed, steps=5)

    assert train(1e-3, 1).tobytes() == train(1e-3, 1).tobytes()
    assert train(1e-3, 1).tobytes() != train(1e-3, 2).tobytes()
    assert train(0.0, 1).tobytes() == start.tobytes()


def test_episodes_move_the_seed_of_the_source() -> None:
    assert source_of_episode("dl2:jobs=60,seed=9,mix=wlm", 3) == "dl2:jobs=60,seed=12,mix=wlm"
    assert source_of_episode("trace.csv", 3) == "trace.csv"
    drawn = endless_episodes(["dl2:seed=1", "dl2:seed=5"], lambda source, number: (source, number))  # type: ignore[arg-type, return-value]
    assert [next(drawn) for _ in range(4)] == [
        ("dl2:seed=1", 0),
        ("dl2:seed=5", 0),
        ("dl2:seed=2", 1),
        ("dl2:seed=6", 1),
    ]


@pytest.mark.parametrize("loss", list(ImitationLoss))
def test_every_loss_comes_nearer_to_the_teacher(loss: ImitationLoss) -> None:
    shown = demonstrations()
    losses: list[float] = []
    settings = ImitationSettings(loss=loss)
    imitate(initial_weights(SPEC, 0), SPEC, shown, settings, steps=150, seed=0, on_step=lambda _, at: losses.append(at))
    assert np.mean(losses[-10:]) < 0.9 * np.mean(losses[:10])


def test_without_bundles_both_halves_of_one_are_shown() -> None:
    spec = SPEC.model_copy(update={"bundles": False})
    seen = watch(build_policy("drf", PolicyContext()), make_workload(0), ENVIRONMENT, SPEEDS)
    shown = demonstrate(seen, spec, ImitationSettings(softness=0.0), 0)
    assert not shown.targets_MA[:, 2:-1:3].any()
    workers, servers = shown.targets_MA[:, 0:-1:3].sum(axis=1), shown.targets_MA[:, 1:-1:3].sum(axis=1)
    assert np.mean((workers > 0.0) & (servers > 0.0)) > 0.1


def test_the_same_seed_learns_the_same_from_every_kind_of_replay_and_reward() -> None:
    for changes in ({"replay": "prioritised", "reward": "paper"}, {"replay": "newest", "reward": "own-job"}):
        settings = ActorCriticSettings(batch_samples=64, minimum_effective_samples=1.0, **changes)

        def learn(settings: ActorCriticSettings = settings) -> np.ndarray:
            episodes = ((make_workload(seed), ENVIRONMENT) for seed in range(9))
            start = initial_weights(SPEC, 0)
            return train_offline(start, SPEC, episodes, SPEEDS, Dl2Settings(actor_critic=settings), 0, steps=5)

        once = learn()
        assert (once == learn()).all()
        assert (once != initial_weights(SPEC, 0)).any()
