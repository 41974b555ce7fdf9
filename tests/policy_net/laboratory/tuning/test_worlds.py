"""Seeds that judge are never met, and those that choose are never trained on."""

import itertools
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.policy_quality.seeds import SEEDS
from benchmarks.policy_quality.seeds import Part as Purpose
from benchmarks.policy_quality.seeds import windows_of as judged_windows_of
from policy_net.errors import BadInput
from policy_net.laboratory.reproduction.tasks import FIRST_JUDGING_SEED
from policy_net.laboratory.training.offline import Episode
from policy_net.laboratory.tuning.worlds import (
    DRAW_SEEDS,
    GENERATOR_SEEDS,
    TuningWorlds,
    WorldPart,
    check_source,
    windows_of,
)

PURPOSES = {
    WorldPart.TRAINING: Purpose.TRAIN,
    WorldPart.CHOOSING: Purpose.VALIDATION,
    WorldPart.JUDGING: Purpose.TEST,
}
SOURCES = ("dl2:jobs=3", "dl2:jobs=3,seed=8999990,sizes=varied", "dl2:", "jobs.csv")


class Listening:
    """A loader that keeps what it is asked for."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, int, int]] = []

    def load(self, source: str, seed: int, window: int) -> Episode:
        self.asked.append((source, seed, window))
        raise LookupError

    def speeds(self) -> None:
        """Nobody asks."""

    def placement_effect(self) -> None:
        """Nobody asks."""


@given(st.sampled_from(WorldPart), st.integers(0, 2**70), st.integers(0, 2**40))
def test_every_world_has_seeds_and_a_window_of_its_part(part: WorldPart, seed: int, number: int) -> None:
    loader = Listening()
    worlds = TuningWorlds(loader, SOURCES, {"jobs.csv": (0, 2, 5)})  # type: ignore[arg-type]
    with pytest.raises(LookupError):
        worlds.training(seed, number) if part is WorldPart.TRAINING else worlds.episode(part, number)
    ((source, drawn, window),) = loader.asked
    allowed = SEEDS[PURPOSES[part]]
    assert drawn in allowed.models
    assert drawn in allowed.disturbances
    if source.startswith("dl2:"):
        (found,) = re.findall(r"[:,]seed=(\d+)", source)
        assert int(found) in allowed.generator
    else:
        assert window == {WorldPart.TRAINING: 0, WorldPart.CHOOSING: 2, WorldPart.JUDGING: 5}[part]


def test_no_seed_is_for_two_things_and_none_that_judges_here_judges_elsewhere() -> None:
    for seeds in (GENERATOR_SEEDS, DRAW_SEEDS):
        parts = [seeds[part] for part in WorldPart]
        assert all(before.stop <= after.start for before, after in itertools.pairwise(parts))
    assert GENERATOR_SEEDS[WorldPart.JUDGING].start >= FIRST_JUDGING_SEED + 50_000


@pytest.mark.parametrize(("jobs", "length"), [(3000, 1000), (2600, 1000), (9000, 1000), (10_499, 1000)])
def test_windows_are_those_that_the_comparison_leaves_for_it(jobs: int, length: int) -> None:
    judged = judged_windows_of(jobs, length)
    found = windows_of("jobs.csv", jobs, length)
    assert [judged[window] for window in found] == [Purpose.TRAIN, Purpose.VALIDATION, Purpose.TEST]


@pytest.mark.parametrize(
    ("source", "says"),
    [("dl2:jobs=3,seed=9500000", "are there to judge"), ("reference:one@traces.csv", "are there to judge")],
)
def test_what_judges_is_refused(source: str, says: str) -> None:
    with pytest.raises(BadInput, match=says):
        check_source(source)


def test_too_few_recorded_jobs_are_refused_and_it_is_said_what_would_do() -> None:
    with pytest.raises(BadInput, match="use 800"):
        windows_of("jobs.csv", 2400, 1000)
    with pytest.raises(BadInput, match="need --limit-jobs"):
        windows_of("jobs.csv", 2400, None)
