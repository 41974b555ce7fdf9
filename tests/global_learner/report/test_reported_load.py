"""Load as clusters tell it: each by itself, those of one time together, and nothing that is not known."""

import math
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from report_makers import NOW, view

from global_learner.report.load import LoadScope, load_section
from global_learner.report.reported_load import MOMENTS, MOST_CLUSTERS, reported_load
from policy_net.exchange.generated import fleet_pb2 as pb

DRAW = random.Random(2)
REAL = {"baseline_policy": "", "baseline_jct_seconds": 0.0, "baselines": []}


def curve(
    used: list[float], policy: str = "", begin: float = 0.0, step: float = 600.0, gpus: float = 8.0, ended: bool = True
) -> pb.LoadCurve:
    return pb.LoadCurve(
        policy=policy, begin_seconds=begin, step_seconds=step, gpus_used=used, ended=ended,
        jobs_waiting=[math.copysign(1.0, value) if value else 0.0 for value in used],
        gpus=[gpus if value >= 0.0 else -1.0 for value in used],
    )  # fmt: skip


def simulated(name: str, *curves: pb.LoadCurve) -> pb.ClusterView:
    return view(name, DRAW, load=curves, simulated=True)


def real(name: str, *curves: pb.LoadCurve) -> pb.ClusterView:
    return view(name, DRAW, load=curves, **REAL)


def seen(scope: LoadScope, label: str = "as it ran") -> list[float | None]:
    (found,) = [curve.used for curve in scope.curves if curve.label == label]
    return list(found)


def test_an_agent_of_before_tells_nothing_and_is_named() -> None:
    assert reported_load([view("older", DRAW, load=[])], NOW) == []
    (scope,) = reported_load([view("older", DRAW, load=[]), simulated("north", curve([4.0] * 9))], NOW)
    assert scope.name == "north"
    assert "Not reported by older: older agents" in scope.note


def test_a_cluster_is_beside_what_its_operator_has_and_what_most_run() -> None:
    reported = [curve([4.0] * 9), curve([2.0] * 9, "drf"), curve([3.0] * 9, "fifo-easy"), curve([1.0] * 9, "recorded")]
    (scope,) = reported_load([simulated("north", *reported)], NOW)
    assert [shown.label for shown in scope.curves] == [
        "your own, as recorded", "FIFO with EASY backfill", "DRF, the fallback", "as it ran",
    ]  # fmt: skip
    assert seen(scope, "FIFO with EASY backfill") == [3.0] * MOMENTS
    assert scope.note.startswith("Simulated, of the latest whole run through its work.")


def test_clusters_of_one_time_are_added_up_and_real_ones_never_with_simulated_ones() -> None:
    views = [
        simulated("a", curve([4.0] * 10)),
        simulated("b", curve([2.0] * 10)),
        real("c", curve([1.0] * 10, begin=NOW - 6000.0, ended=False)),
        real("d", curve([3.0] * 5, begin=NOW - 3000.0, ended=False)),
    ]
    scopes = {scope.name: scope for scope in reported_load(views, NOW)}
    assert list(scopes) == ["all 2 real clusters", "all 2 simulated clusters", "a", "b", "c", "d"]
    assert seen(scopes["all 2 simulated clusters"]) == [6.0] * MOMENTS
    # Before the second cluster's agent began, the GPUs of the first are all that are known of.
    assert seen(scopes["all 2 real clusters"]) == [1.0] * (MOMENTS // 2) + [4.0] * (MOMENTS // 2)
    assert list(scopes["all 2 real clusters"].gpus) == [8.0] * (MOMENTS // 2) + [16.0] * (MOMENTS // 2)
    assert scopes["c"].real
    assert "are shown once 20 jobs have ended" in scopes["c"].note


def test_a_scheduler_that_is_not_known_of_every_cluster_is_not_added_up() -> None:
    both = simulated("a", curve([4.0] * 10), curve([4.0] * 10, "drf"))
    fleet, a, b = reported_load([both, simulated("b", curve([2.0] * 10))], NOW)
    assert [len(scope.curves) for scope in (fleet, a, b)] == [1, 2, 1]


def test_a_moment_counts_the_clusters_of_which_every_scheduler_is_known() -> None:
    slow = simulated("a", curve([4.0] * 5, ended=False), curve([4.0] * 10, "drf"))
    quick = simulated("b", curve([2.0] * 10), curve([1.0] * 10, "drf"))
    fleet, *_ = reported_load([slow, quick], NOW)
    assert seen(fleet) == [6.0] * (MOMENTS // 2) + [2.0] * (MOMENTS // 2)
    assert seen(fleet, "DRF, the fallback") == [5.0] * (MOMENTS // 2) + [1.0] * (MOMENTS // 2)


def test_what_is_not_known_is_a_gap() -> None:
    (scope,) = reported_load([real("north", curve([4.0, -1.0, 4.0], begin=NOW - 1800.0, ended=False))], NOW)
    third = MOMENTS // 3
    assert seen(scope) == [4.0] * third + [None] * third + [4.0] * third


def test_the_long_tail_of_a_run_that_ended_is_left_out() -> None:
    reported = [curve([8.0] * 100, policy) for policy in ("", "fifo-easy")]
    reported[0].nearly_done_seconds, reported[1].nearly_done_seconds = 600.0 * 20, 600.0 * 50
    (scope,) = reported_load([simulated("north", *reported)], NOW)
    assert 49 * 600.0 < scope.seconds[-1] < 50 * 600.0
    assert seen(scope) == [8.0] * MOMENTS, "what is shown of the others is shown of each"


def test_a_cluster_with_a_clock_of_its_own_does_not_stretch_the_others() -> None:
    views = [
        real("a", curve([1.0] * 10, begin=NOW - 6000.0, ended=False)),
        real("b", curve([1.0] * 10, ended=False)),  # of 1970
        real("c", curve([1.0] * 10, begin=NOW + 1e8, ended=False)),
    ]
    fleet = reported_load(views, NOW)[0]
    assert fleet.seconds[0] >= NOW - 8 * 86_400
    assert fleet.seconds[-1] <= NOW + 3600.0


def test_of_very_many_clusters_the_largest_can_be_chosen() -> None:
    views = [simulated(f"c{number:03}", curve([1.0] * 5, gpus=number + 1.0)) for number in range(MOST_CLUSTERS + 20)]
    scopes = reported_load(views, NOW)
    assert [scope.name for scope in scopes[:2]] == [f"all {MOST_CLUSTERS + 20} clusters", "c020"]
    assert len(scopes) == 1 + MOST_CLUSTERS


AMOUNTS = st.one_of(st.just(-1.0), st.floats(0.0, 1e6, width=32))


@given(
    st.lists(
        st.tuples(
            st.lists(AMOUNTS, min_size=1, max_size=6),
            st.floats(0.0, 1e12),
            st.floats(1e-3, 1e10),
            st.booleans(),
            st.booleans(),
        ),
        max_size=4,
    )
)
def test_whatever_the_learner_takes_can_be_drawn(
    reported: list[tuple[list[float], float, float, bool, bool]],
) -> None:
    views = [
        (real if is_real else simulated)(f"c{index}", curve(used, begin=begin, step=step, ended=ended))
        for index, (used, begin, step, ended, is_real) in enumerate(reported)
    ]
    section = load_section(reported_load(views, NOW))
    for part in [] if section is None else section["scopes"]:
        assert len(part["seconds"]) == len(part["gpus"]) == MOMENTS
        assert all(len(shown["used"]) == MOMENTS for shown in part["curves"])


def test_the_share_of_gpus_in_use_is_of_those_that_there_were() -> None:
    section = load_section(reported_load([simulated("a", curve([4.0] * 10)), simulated("b", curve([2.0] * 10))], NOW))
    assert section is not None
    assert section["scopes"][0]["use_finding"] == "GPUs in use on average: 38%."
    assert section["scopes"][1]["use_finding"] == "GPUs in use on average: 50%."
    assert section["scopes"][0]["waiting_finding"] == pytest.approx("Jobs waiting on average: 2.0.")
