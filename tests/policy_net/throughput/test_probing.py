from states import make_job, make_state

from policy_net.domain import Allocation, CapacityMode, ClusterState, Job, JobKind, Progress
from policy_net.throughput.gaussian_process import GaussianProcessBeliefs
from policy_net.throughput.parametric import OnlineFit
from policy_net.throughput.probing import ALLREDUCE_PROBES, ENOUGH_ALLOCATIONS, PROBES, choose_probes


def pooled(jobs: list[Job], nodes: int = 100) -> ClusterState:
    return make_state(jobs, nodes=nodes, mode=CapacityMode.POOLED)


def after_seeing(*allocations: Allocation) -> OnlineFit:
    beliefs = OnlineFit()
    beliefs.observe([Progress("job", "a", held, 1200.0, 1200.0, 1.0, 10.0) for held in allocations])
    return beliefs


def test_the_first_job_of_each_unknown_type_is_probed() -> None:
    jobs = [make_job(0, "a"), make_job(1, "a"), make_job(2, "b")]
    assert choose_probes(pooled(jobs), OnlineFit()) == {0: PROBES[0], 2: PROBES[0]}


def test_probes_go_through_what_was_not_seen_and_end_with_enough() -> None:
    jobs = [make_job(0, "a")]
    seen: list[Allocation] = []
    while probes := choose_probes(pooled(jobs), after_seeing(*seen)):
        assert probes[0] not in seen
        seen.append(probes[0])
    assert len(seen) == ENOUGH_ALLOCATIONS


def test_where_contention_showed_enough_allocations_none_is_tried() -> None:
    other = [Allocation(workers, 3) for workers in range(1, ENOUGH_ALLOCATIONS + 1)]
    assert choose_probes(pooled([make_job(0, "a")]), after_seeing(*other)) == {}


def test_a_probe_takes_no_more_than_an_equal_share_of_the_cluster() -> None:
    jobs = [make_job(number, f"type-{number}") for number in range(4)]
    # Four nodes are sixteen tasks, four a job: of all probes only 2 PSs + 1 worker are that small.
    assert set(choose_probes(pooled(jobs, nodes=4), OnlineFit()).values()) == {Allocation(workers=1, ps=2)}
    assert choose_probes(pooled(jobs, nodes=2), OnlineFit()) == {}


def test_a_probe_keeps_to_the_jobs_caps() -> None:
    jobs = [make_job(0, "a", max_ps=4, max_workers=4)]
    (probe,) = choose_probes(pooled(jobs), OnlineFit()).values()
    assert probe.ps <= 4
    assert probe.workers <= 4


def test_without_jobs_there_is_nothing_to_probe() -> None:
    assert choose_probes(pooled([]), OnlineFit()) == {}


def test_an_allreduce_type_is_probed_without_servers_until_every_probe_was_seen() -> None:
    jobs = [make_job(0, "a", kind=JobKind.ALLREDUCE, max_ps=0, min_ps=0)]
    seen: list[Allocation] = []
    while probes := choose_probes(pooled(jobs), after_seeing(*seen)):
        seen.append(probes[0])
    assert tuple(seen) == ALLREDUCE_PROBES


def test_a_probe_is_never_below_the_least_with_which_the_job_trains() -> None:
    jobs = [make_job(0, "a", min_workers=4, min_ps=4)]
    assert choose_probes(pooled(jobs), OnlineFit()) == {0: Allocation(workers=4, ps=4)}


def test_optimistic_beliefs_need_no_probes() -> None:
    assert choose_probes(pooled([make_job(0, "a")]), GaussianProcessBeliefs()) == {}
