"""What is believed of places: nothing at first, little from little, and what was reported in the end."""

import json
import math

import pytest
from states import make_job

from policy_net.domain import Allocation, JobKind, Progress
from policy_net.errors import BadInput
from policy_net.throughput.place_effects import PlaceBeliefs

Places = tuple[tuple[str, int], ...]
ONE, TWO = (("", 8),), (("", 8), ("", 8))
V100, K80 = (("v100", 4),), (("k80", 4),)


def report(places: Places, speed: float, job_type: str = "bert", seconds: float = 100.0) -> Progress:
    workers = sum(count for _, count in places)
    return Progress("job-0", job_type, Allocation(workers, 0), seconds, speed * seconds, 1.0, 9.0, places=places)


def taught(reports: list[tuple[Places, float, str]], times: int = 40) -> PlaceBeliefs:
    """Believes after these reports, in turn, of jobs that are believed to train 100 samples/s in the best place."""
    beliefs = PlaceBeliefs()
    for _ in range(times):
        for places, speed, job_type in reports:
            beliefs.observe(report(places, speed, job_type), 100.0)
    return beliefs


def test_at_first_no_place_makes_a_difference() -> None:
    beliefs = PlaceBeliefs()
    for places in (ONE, TWO, V100, (("v100", 3), ("k80", 5), ("t4", 1))):
        assert beliefs.relative_speed("bert", places) == 1.0
    entry = report(TWO, 30.0)
    assert beliefs.without_places(entry) is entry


def test_what_spanning_nodes_costs_is_learned_and_little_is_made_of_one_report() -> None:
    once, often = taught([(TWO, 25.0, "bert")], times=1), taught([(TWO, 25.0, "bert")])
    assert 0.25 < often.relative_speed("bert", TWO) < 0.3
    assert often.relative_speed("bert", TWO) < once.relative_speed("bert", TWO) < 1.0
    assert often.relative_speed("bert", ONE) == 1.0


def test_more_nodes_may_be_faster_than_two() -> None:
    four = (("", 4),) * 4
    beliefs = taught([(TWO, 35.0, "bert"), (four, 58.0, "bert")])
    assert beliefs.relative_speed("bert", TWO) < beliefs.relative_speed("bert", four)


def test_a_type_that_was_never_seen_apart_is_taken_for_its_like_until_it_is_seen() -> None:
    beliefs = taught([(TWO, 25.0, "bert"), (TWO, 25.0, "gpt2")])
    assert beliefs.relative_speed("vgg16", TWO) < 0.6
    for _ in range(40):
        beliefs.observe(report(TWO, 98.0, "vgg16"), 100.0)
    assert beliefs.relative_speed("vgg16", TWO) > 0.85
    assert beliefs.relative_speed("bert", TWO) < 0.35


def test_jobs_with_servers_learn_nothing_from_all_reduce() -> None:
    beliefs = PlaceBeliefs()
    beliefs.introduce([make_job(0, "bert", kind=JobKind.ALLREDUCE), make_job(1, "wlm", kind=JobKind.PS)])
    for _ in range(20):
        beliefs.observe(report(TWO, 25.0, "bert"), 100.0)
    assert beliefs.relative_speed("wlm", TWO) == 1.0


def test_gpu_types_are_told_apart_by_type_of_job_and_the_slowest_sets_the_pace() -> None:
    beliefs = taught([(V100, 150.0, "a"), (K80, 20.0, "a"), (V100, 150.0, "b"), (K80, 50.0, "b")])
    ratios = [beliefs.relative_speed(name, V100) / beliefs.relative_speed(name, K80) for name in ("a", "b", "new")]
    assert ratios[0] > ratios[2] > ratios[1] > 2.0
    assert ratios[0] == pytest.approx(7.5, rel=0.2)
    mixed = beliefs.relative_speed("a", (("v100", 4), ("k80", 4)))
    assert mixed == pytest.approx(beliefs.relative_speed("a", K80), rel=0.05)


def test_one_gpu_type_alone_says_nothing_of_types() -> None:
    assert taught([(V100, 20.0, "bert")]).relative_speed("bert", V100) == 1.0


def test_a_report_without_its_place_is_over_what_is_believed_of_it() -> None:
    beliefs = taught([(TWO, 25.0, "bert")])
    entry = beliefs.without_places(report(TWO, 25.0))
    assert entry.samples == pytest.approx(25.0 * 100.0 / beliefs.relative_speed("bert", TWO))
    assert beliefs.without_places(report(ONE, 25.0)).samples == pytest.approx(2500.0)


@pytest.mark.parametrize(
    "entry", [report((), 1.0), report(TWO, 0.0), report(TWO, math.inf), report(TWO, 1.0, "b", 0.0)]
)
def test_reports_that_say_nothing_are_passed_over(entry: Progress) -> None:
    beliefs = PlaceBeliefs()
    beliefs.observe(entry, 100.0)
    beliefs.observe(report(TWO, 25.0), 0.0)
    assert beliefs.reports == 0


def test_a_report_beyond_measure_does_not_drown_the_others() -> None:
    beliefs = taught([(TWO, 1e300, "bert")], times=1)
    assert beliefs.relative_speed("bert", TWO) <= 20.0


def test_a_snapshot_goes_on_bit_for_bit() -> None:
    one = taught([(TWO, 25.0, "bert"), (V100, 150.0, "a"), (K80, 20.0, "a")], times=3)
    other = PlaceBeliefs.restored(json.loads(json.dumps(one.snapshot())))
    for number in range(30):
        for beliefs in (one, other):
            beliefs.observe(report(TWO, 30.0 + number, "gpt2"), 100.0)
        assert one.digest() == other.digest()
        assert one.relative_speed("gpt2", TWO) == other.relative_speed("gpt2", TWO)


@pytest.mark.parametrize(
    "damage", [{"means": [[["gpu", "t4"], 3]]}, {"means": [[["gpu", "t4"], 0, 0.1]]}, {"reports": "x"}]
)
def test_a_damaged_snapshot_is_refused(damage: dict[str, object]) -> None:
    snapshot = taught([(TWO, 25.0, "bert")], times=3).snapshot()
    with pytest.raises(BadInput, match="delete it to start anew"):
        PlaceBeliefs.restored({**snapshot, **damage})
