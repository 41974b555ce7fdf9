"""Beliefs over the wire, and into versions."""

import math
from pathlib import Path

import grpc
import numpy as np
import pytest
import structlog
from belief_makers import World
from learner_in_process import serving
from learner_makers import SPEC

from global_learner.beliefs.priors import priors_for
from global_learner.updates.head import Publication
from global_learner.updates.ledger import SinceVersion
from policy_net.domain import JobKind
from policy_net.exchange.generated import fleet_pb2 as pb
from policy_net.exchange.statistics import MOST_SHARED, SpeedStatistic, statistics_digest
from policy_net.exchange.wire import statistics_of, type_messages

STATISTICS = (
    SpeedStatistic("vgg-16", JobKind.PS, 1, 1, 3.5, 4),
    SpeedStatistic("vgg-16", JobKind.PS, 2, 4, 4.5, 2),
    SpeedStatistic("ring", JobKind.ALLREDUCE, 0, 4, 6.25, 9),
)


def share(cluster: str = "north", revision: int = 1, statistics=STATISTICS, incarnation: int = 1):
    return pb.ShareBeliefsRequest(
        cluster=cluster, incarnation=incarnation, revision=revision, types=type_messages(statistics)
    )


async def counted(caller, outcome: str) -> float:
    name = "fedl2_learner_belief_reports_total"
    return caller.learner.beliefs._telemetry.registry.get_sample_value(name, {"outcome": outcome}) or 0.0


async def test_what_a_cluster_tells_is_kept_once_however_often_it_is_told(tmp_path: Path) -> None:
    async with serving(tmp_path) as caller:
        await caller.register()
        first = await caller.call("ShareBeliefs", share())
        assert (first.taken, first.statistics, list(first.left_out)) == (True, 3, [])
        again = await caller.call("ShareBeliefs", share())
        assert (again.taken, again.statistics) == (False, 3)
        (view,) = (await caller.fleet()).clusters
        assert (view.speed_statistics, view.speed_observations) == (3, 15)
        assert await counted(caller, "taken") == 1
        assert await counted(caller, "repeated") == 1


async def test_an_unregistered_cluster_is_not_heard(tmp_path: Path) -> None:
    async with serving(tmp_path) as caller:
        assert await caller.refused("ShareBeliefs", share()) is grpc.StatusCode.FAILED_PRECONDITION
        await caller.register()
        assert await caller.refused("ShareBeliefs", share(incarnation=2)) is grpc.StatusCode.FAILED_PRECONDITION
        assert caller.learner.beliefs.summary("north").statistics == 0


def message(**changes) -> pb.TypeStatistics:
    sound = {
        "job_type": "a", "kind": "ps", "ps": [1, 2], "workers": [1, 1], "mean_log_speed": [1, 2], "count": [3, 4]
    }  # fmt: skip
    return pb.TypeStatistics(**(sound | changes))


@pytest.mark.parametrize(
    ("reason", "types"),
    [
        ("impossible", [message(mean_log_speed=[1.0])]),
        ("impossible", [message(ps=[1, 1])]),
        ("impossible", [message(), message()]),
        ("impossible", [message(), message(kind="allreduce", ps=[0, 0], workers=[1, 2])]),
        ("impossible", [message(kind="ring")]),
        ("impossible", [message(kind="")]),
        ("impossible", [message(ps=[0, 2])]),
        ("impossible", [message(workers=[1, 17])]),
        ("impossible", [message(mean_log_speed=[math.nan, 1])]),
        ("impossible", [message(mean_log_speed=[math.inf, 1])]),
        ("impossible", [message(count=[0, 1])]),
        ("impossible", [message(job_type="")]),
        ("impossible", [message(job_type="x" * 129)]),
        ("bad-name", [message(job_type="a\nb")]),
        ("out-of-range", [message(mean_log_speed=[1, 30])]),
        ("out-of-range", [message(workers=[1, 4], mean_log_speed=[1, math.log(4.01e8)])]),
        (
            "out-of-range",
            [message(kind="allreduce", ps=[0], workers=[1], mean_log_speed=[math.log(1.01e8)], count=[1])],
        ),
        ("out-of-range", [message(mean_log_speed=[1, -30])]),
        ("out-of-range", [message(count=[1, 2**63])]),
        ("too-many-types", [message(job_type=str(number)) for number in range(129)]),
        ("too-many-statistics", [message(ps=[1] * 20_000)]),
    ],
)
async def test_what_nobody_can_have_seen_is_refused_whole(tmp_path: Path, reason: str, types) -> None:
    async with serving(tmp_path) as caller:
        await caller.register()
        await caller.call("ShareBeliefs", share())
        request = pb.ShareBeliefsRequest(cluster="north", incarnation=1, revision=2, types=types)
        with pytest.raises(grpc.aio.AioRpcError, match=reason) as caught:
            await caller.call("ShareBeliefs", request)
        assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT
        assert await counted(caller, reason) == 1
        assert caller.learner.beliefs.summary("north").observations == 15
        assert (await caller.call("ShareBeliefs", share(revision=2))).taken, "the refused revision was not used up"


async def test_as_fast_as_each_worker_can_be_is_believed(tmp_path: Path) -> None:
    """A hundred million samples a second are more than any accelerator reads; each worker has its own."""
    async with serving(tmp_path) as caller:
        await caller.register()
        types = [message(workers=[1, 4], mean_log_speed=[math.log(0.99e8), math.log(3.99e8)])]
        request = pb.ShareBeliefsRequest(cluster="north", incarnation=1, revision=1, types=types)
        assert (await caller.call("ShareBeliefs", request)).taken


@pytest.mark.parametrize("revision", [0, 2**63])
async def test_a_revision_that_cannot_be_is_refused(tmp_path: Path, revision: int) -> None:
    async with serving(tmp_path) as caller:
        await caller.register()
        assert await caller.refused("ShareBeliefs", share(revision=revision)) is grpc.StatusCode.INVALID_ARGUMENT


def test_the_largest_report_of_an_agent_passes_the_learners_limits() -> None:
    many = [
        SpeedStatistic(f"{'t' * 100}{number:03}", JobKind.PS, 1 + cell // 16, 1 + cell % 16, 5.0, 10**9)
        for number in range(MOST_SHARED // 64)
        for cell in range(64)
    ]
    request = share(statistics=many)
    assert len(request.SerializeToString()) < 2**18
    assert len(statistics_of(request.types)) == MOST_SHARED


def test_a_version_says_what_the_fleet_has_seen_and_from_how_much(tmp_path: Path) -> None:
    world = World(tmp_path)
    for cluster in ("north", "south", "east"):
        world.store.report(cluster, 1, 1, STATISTICS, 1.0)
    version = world.publish(100)
    reported = {(entry.job_type, entry.ps, entry.workers): entry for entry in version.priors}
    assert {split: (round(e.mean_log_speed, 3), e.count) for split, e in reported.items()} == {
        ("ring", 0, 4): (6.25, 27),
        ("vgg-16", 1, 1): (3.5, 12),
        ("vgg-16", 2, 4): (4.5, 6),
    }
    assert version.card["priors"] == {
        "digest": statistics_digest(version.priors),
        "statistics": 3,
        "types": 2,
        "observations": 45,
        "clusters": 3,
    }
    assert world.telemetry.registry.get_sample_value("fedl2_learner_priors_clusters_count") == 3


def test_a_cluster_that_tells_more_is_still_counted_once(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.store.report("north", 1, 1, STATISTICS[:1], 1.0)
    assert [entry.count for entry in world.publish(100).priors] == [4]
    for incarnation in range(2, 6):
        world.store.report("north", incarnation, 1, STATISTICS[:1], 1.0)
    assert [entry.count for entry in world.publish(200).priors] == [4]


def test_quarantined_and_revoked_clusters_do_not_count_and_count_again(tmp_path: Path) -> None:
    world = World(tmp_path)
    out = {"south"}
    world.beliefs.priors.exclude(lambda cluster, at: cluster in out)
    world.store.report("north", 1, 1, STATISTICS[:1], 1.0)
    world.store.report("south", 1, 1, STATISTICS[2:], 1.0)
    assert {entry.job_type for entry in world.publish(100).priors} == {"vgg-16"}
    out.clear()
    assert {entry.job_type for entry in world.publish(200).priors} == {"vgg-16", "ring"}


def test_before_anybody_told_anything_versions_say_what_the_first_one_said(tmp_path: Path) -> None:
    world = World(tmp_path, STATISTICS)
    version = world.publish(100)
    assert set(version.priors) == set(STATISTICS)
    assert version.card["priors"]["clusters"] == 0
    world.store.report("north", 1, 1, [SpeedStatistic("new", JobKind.PS, 1, 1, 2.0, 3)], 1.0)
    assert {entry.job_type for entry in world.publish(200).priors} == {"vgg-16", "ring", "new"}


@pytest.mark.parametrize("damaged", ["the newest", "all"])
def test_a_version_that_is_damaged_while_the_learner_runs_ends_no_publication(tmp_path: Path, damaged: str) -> None:
    world = World(tmp_path, STATISTICS[:1])
    world.store.report("north", 1, 1, STATISTICS[2:], 1.0)
    if damaged == "all":
        world.beliefs.priors.begin(STATISTICS[:1])  # as a start does
    expected = world.publish(100).priors
    world.publish(200)
    cards = world.registry.versions()
    for card in cards if damaged == "all" else cards[-1:]:
        path = world.registry.policy_path(card.version)
        path.write_bytes(path.read_bytes()[:-1] + b"\x7f")
    with structlog.testing.capture_logs() as lines:
        assert world.publish(300).priors == expected
    said = [line["version"] for line in lines if line["event"] == "version-unreadable"]
    assert said == ([3, 2, 1] if damaged == "all" else [3])


def test_versions_of_a_policy_without_beliefs_stay_as_they_were(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.store.report("north", 1, 1, STATISTICS, 1.0)
    assert priors_for(SPEC, world.beliefs.priors) is None
    due = Publication(100, np.zeros(SPEC.parameter_count, np.float32), SinceVersion(), 1.0)
    assert due.policy_file(SPEC, world.beliefs.priors.now()).to_bytes() == due.policy_file(SPEC).to_bytes()


def test_a_version_is_taught_for_the_jobs_of_v1_and_says_whose_lessons_it_had() -> None:
    due = Publication(100, np.zeros(SPEC.parameter_count, np.float32), SinceVersion(), 1.0, lessons={"north": 3})
    taught = {"at_once": 20, "kinds": ["ps"]}
    assert due.policy_file(SPEC, first_card={"taught": taught}).card["taught"] == {**taught, "lessons": {"north": 3}}
    assert "taught" not in due.policy_file(SPEC).card
