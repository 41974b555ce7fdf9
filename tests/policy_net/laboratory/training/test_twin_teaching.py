"""Teaching in a twin: finds what a window's cost says, stays in its region, and is the same for the same seed."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from policy_net.exchange.policy_file import PolicyFile
from policy_net.exchange.spec import Weights, split_weights
from policy_net.laboratory.simulation.environment import Environment
from policy_net.laboratory.speeds.speed import default_speeds
from policy_net.laboratory.training import set_training
from policy_net.laboratory.training.set_training import begin, teach
from policy_net.laboratory.training.settings import SetSettings, SetTwinSettings
from policy_net.laboratory.training.twin_windows import TwinWindow, part_of
from policy_net.laboratory.workloads.sources import load_workload
from policy_net.laboratory.workloads.workload import WorkloadOptions
from policy_net.set_policy.policy import default_set_file, set_spec_of
from policy_net.set_policy.spreads import spreads_of

SPEEDS = default_speeds()
WORKLOAD = load_workload("dl2:jobs=60,seed=3", WorkloadOptions(speeds=SPEEDS))
WINDOW = TwinWindow(WORKLOAD, Environment(nodes=8), SPEEDS)
START = begin(SetSettings(), 0)
SPREADS = spreads_of(set_spec_of(START, "set"))
GOAL = START.weights + 1.5 * SPREADS * np.sign(np.sin(np.arange(len(SPREADS)) + 1.0)).astype(np.float32)


def settings(**changed: object) -> SetTwinSettings:
    return SetTwinSettings.model_validate({"average_updates": 1.0} | changed)


@pytest.fixture
def _bowl(monkeypatch: pytest.MonkeyPatch) -> None:
    """Replays whose mean JCT is least at `GOAL`."""

    def cost_of(*_: object) -> Callable[[Weights], float]:
        return lambda weights: 1000.0 * float(np.exp(0.01 * (((weights - GOAL) / SPREADS) ** 2).sum()))

    monkeypatch.setattr(set_training, "cost_of", cost_of)


def distance(weights: Weights) -> float:
    return float(np.abs((weights - GOAL) / SPREADS).mean())


@pytest.mark.usefixtures("_bowl")
def test_it_finds_what_ends_jobs_soonest() -> None:
    wanted = settings(pairs=16, largest_difference=10.0, learning_rate=0.2)
    found = teach(START, lambda _: WINDOW, wanted, 1, updates=200)
    assert distance(START.weights) == pytest.approx(1.5)
    assert distance(found) < 0.4


@pytest.mark.usefixtures("_bowl")
@pytest.mark.parametrize("radius", [0.25, 1.0])
def test_no_parameter_leaves_the_region(radius: float) -> None:
    found = teach(START, lambda _: WINDOW, settings(trust_radius=radius, learning_rate=1.0), 1, updates=20)
    moved = np.abs((found - START.weights) / SPREADS)
    assert moved.max() == pytest.approx(radius, rel=1e-3)


@pytest.mark.usefixtures("_bowl")
def test_at_rate_0_nothing_moves_and_an_average_lags_behind() -> None:
    still = teach(START, lambda _: WINDOW, settings(learning_rate=0.0), 1, updates=5)
    assert np.array_equal(still, START.weights)
    newest, averaged = (
        teach(START, lambda _: WINDOW, settings(average_updates=count), 1, updates=10) for count in (1.0, 50.0)
    )
    assert 0.0 < np.abs(averaged - START.weights).sum() < np.abs(newest - START.weights).sum()


@pytest.mark.usefixtures("_bowl")
def test_the_caller_may_stop_it_and_is_told_of_every_update() -> None:
    reported: list[tuple[int, float]] = []
    found = teach(
        START,
        lambda _: WINDOW,
        settings(),
        1,
        updates=10,
        stop=lambda: len(reported) == 3,
        on_update=lambda done, weights, _: reported.append((done, float(weights.sum()))),
    )
    assert [done for done, _ in reported] == [1, 2, 3]
    assert reported[-1][1] == pytest.approx(float(found.sum()))


def test_replays_of_jobs_teach_the_same_bits_for_a_seed_and_other_settings_meet_the_same_windows() -> None:
    met: dict[int, list[float]] = {}

    def windows(pairs: int) -> Callable[[np.random.Generator], TwinWindow]:
        def draw(generator: np.random.Generator) -> TwinWindow:
            met.setdefault(pairs, []).append(float(generator.random()))
            return WINDOW

        return draw

    few = {"window_jobs": 20, "pairs": 1}
    first, again, other = (teach(START, windows(1), settings(**few), seed, updates=2) for seed in (1, 1, 2))
    assert np.array_equal(first, again)
    assert not np.array_equal(first, other)
    assert not np.array_equal(first, START.weights)
    teach(START, windows(2), settings(**few | {"pairs": 2}), 1, updates=2)
    assert met[2] == met[1][:2]


def test_a_part_is_a_run_of_consecutive_jobs_and_a_short_workload_is_whole() -> None:
    generator = np.random.default_rng(0)
    part = part_of(WINDOW, 20, 0.15, generator)
    names = [job.job_id for job in WORKLOAD.jobs]
    first = names.index(part.workload.jobs[0].job_id)
    assert [job.job_id for job in part.workload.jobs] == names[first : first + 20]
    assert part.workload.jobs[0].submit_time_seconds == 0.0
    assert part_of(WINDOW, 60, 0.15, generator).workload.jobs == WORKLOAD.jobs
    assert part.speeds.grid("resnet-50").max() != SPEEDS.grid("resnet-50").max()


@pytest.mark.parametrize(("prices", "sessions"), [(True, True), (False, True), (False, False)])
@pytest.mark.parametrize("start", ["set", "planner"])
def test_what_is_taught_begins_with_the_shipped_speeds_and_the_structure_that_is_asked_for(
    start: str, prices: bool, sessions: bool
) -> None:
    wanted = SetSettings.model_validate(
        {"neurons": 8, "twin": {"start": start, "prices": prices, "sessions": sessions}}
    )
    made: PolicyFile = begin(wanted, 3)
    spec = set_spec_of(made, "made")
    assert (bool(spec.prices), bool(spec.sessions)) == (prices, sessions)
    assert made.priors == default_set_file().priors
    shipped = default_set_file()
    if start == "planner":
        assert spec.hidden == (8,)
        assert not split_weights(made.weights, spec)["residual.1.weight"].any()
    else:
        kept = split_weights(made.weights, spec)["residual.0.weight"]
        assert np.array_equal(kept, split_weights(shipped.weights, shipped.spec)["residual.0.weight"])
