"""What a cluster tells of speeds, when, and what it keeps to itself."""

from agent_fakes import Clock, FakeLearner
from hypothesis import given
from hypothesis import strategies as st

from cluster_agent.fleet.sharing import Sharing
from cluster_agent.settings import SharingSettings
from cluster_agent.telemetry import AgentTelemetry
from policy_net.domain import JobKind
from policy_net.exchange.statistics import MOST_SHARED, MOST_SHARED_TYPES, SpeedStatistic, most_observed


def seen(count: int, job_type: str = "vgg-16", cell: int = 0) -> SpeedStatistic:
    return SpeedStatistic(job_type, JobKind.PS, 1 + cell // 16, 1 + cell % 16, 4.0, count)


class World:
    def __init__(self, **settings: object) -> None:
        self.learner, self.clock, self.telemetry = FakeLearner(), Clock(), AgentTelemetry()
        self.statistics: tuple[SpeedStatistic, ...] = (seen(3),)
        self.sharing = Sharing(
            self.learner,
            SharingSettings.model_validate(settings),
            lambda: self.statistics,
            self.telemetry,
            self.clock,
        )
        self.registration = self.learner.register("", ())

    def beat(self, seconds: float = 60.0, **how: bool) -> None:
        self.sharing.beat(self.registration, **how)
        self.clock.now += seconds

    def outcomes(self, outcome: str) -> float:
        name = "fedl2_agent_belief_reports_total"
        return self.telemetry.registry.get_sample_value(name, {"outcome": outcome}) or 0.0


def test_all_that_was_seen_is_told_at_once_and_then_only_when_it_changed() -> None:
    world = World()
    for _ in range(3):
        world.beat()
    world.statistics = (seen(5),)
    world.beat()
    assert world.learner.reported == [(1, 1, (seen(3),)), (1, 2, (seen(5),))]
    assert world.outcomes("taken") == 2


def test_reports_keep_their_distance_but_the_last_one_does_not_wait() -> None:
    world = World(every_seconds=100.0)
    for number in range(4):
        world.statistics = (seen(number + 1),)
        world.beat(40.0)
    assert [statistics[0].count for _, _, statistics in world.learner.reported] == [1, 4]
    world.statistics = (seen(9),)
    world.beat(last=True)
    assert world.learner.reported[-1][2] == (seen(9),)


def test_a_new_registration_hears_everything_again_from_revision_one() -> None:
    world = World()
    world.beat()
    world.registration = world.learner.register("", ())
    world.beat()
    assert world.learner.reported == [(1, 1, (seen(3),)), (2, 1, (seen(3),))]


def test_what_was_not_answered_or_refused_is_told_again_and_harms_nothing() -> None:
    world = World()
    world.learner.away = 1
    world.beat()
    world.learner.refuse = 1
    world.beat()
    world.beat()
    assert world.learner.reported == [(1, 3, (seen(3),))]
    assert (world.outcomes("unanswered"), world.outcomes("refused"), world.outcomes("taken")) == (1, 1, 1)


def test_nothing_seen_yet_leaves_alone_what_was_told_in_an_earlier_life() -> None:
    world = World()
    world.statistics = ()
    world.beat()
    assert world.learner.reported == []


def test_with_sharing_off_nothing_is_told_and_what_was_told_is_taken_back_once() -> None:
    world = World(enabled=False)
    for _ in range(3):
        world.beat()
    world.beat(last=True)
    assert world.learner.reported == [(1, 1, ())]


def test_only_types_on_the_list_are_told() -> None:
    world = World(job_types=("bert",))
    world.statistics = (seen(3), seen(4, "bert"))
    world.beat()
    assert world.learner.reported == [(1, 1, (seen(4, "bert"),))]
    assert SharingSettings(job_types=("bert",)).shares("bert")
    assert not SharingSettings(job_types=("bert",), enabled=False).shares("bert")


def test_a_type_whose_name_cannot_be_printed_keeps_no_other_from_being_told() -> None:
    world = World()
    world.statistics = (seen(3, "a\nb"), seen(3, "a\x1b[31m"), seen(4, "bert"))
    world.beat()
    assert world.learner.reported == [(1, 1, (seen(4, "bert"),))]


@given(st.lists(st.integers(1, 1000), min_size=MOST_SHARED_TYPES + 1, max_size=MOST_SHARED_TYPES + 40))
def test_too_many_types_are_cut_to_those_seen_most(counts: list[int]) -> None:
    kept = most_observed([seen(count, f"t{number}") for number, count in enumerate(counts)])
    assert sorted((entry.count for entry in kept), reverse=True) == sorted(counts, reverse=True)[:MOST_SHARED_TYPES]


def test_too_many_splits_are_cut_to_those_seen_most_in_their_order() -> None:
    everything = [seen(1 + (7 * n) % 256, f"t{t:02}", n) for t in range(40) for n in range(256)]
    kept = most_observed(everything)
    reported = set(kept)
    assert len(kept) == MOST_SHARED
    assert list(kept) == [entry for entry in everything if entry in reported]
    assert min(entry.count for entry in kept) >= max(entry.count for entry in set(everything) - reported)
