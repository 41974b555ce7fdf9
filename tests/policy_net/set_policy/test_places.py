"""Places in the plan of `set`: who gets which GPU type, how far a job grows, and who moves; nothing without places."""

import json
from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from states import make_job, make_state, states
from worlds import make_spec, make_workload

from policy_net.domain import (
    SUSPENDED,
    Allocation,
    ClusterState,
    Decision,
    Job,
    JobKind,
    Moves,
    Node,
    Placement,
    PlacementEffect,
    Progress,
    Resources,
    Share,
    Trigger,
)
from policy_net.exchange.state_codec import decode_state, encode_state
from policy_net.laboratory.simulation.engine import Simulation
from policy_net.laboratory.simulation.environment import DecideOn, Environment
from policy_net.laboratory.simulation.replay import replay
from policy_net.laboratory.speeds.placement_effect import FittedPlacementEffect
from policy_net.laboratory.speeds.speed import default_speeds
from policy_net.laboratory.workloads.workload import WorkloadJob
from policy_net.set_policy.policy import SetPolicy, default_set_file, set_spec_of
from policy_net.set_policy.pools import ALL, GpuPool, PlaceTables
from policy_net.set_policy.reasons import reasons_of

SPEEDS = default_speeds()
RING = "bert-64-allreduce"


class Effect:
    """Lying on several nodes leaves this share of the speed, and each GPU type has a factor by type of job."""

    def __init__(self, apart: float = 1.0, factors: dict[tuple[str, str], float] | None = None) -> None:
        self.apart, self.factors = apart, factors or {}

    def relative_speed(self, job_type: str, workers_by_node: Sequence[tuple[str, int]]) -> float:
        gpu = min(self.factors.get((job_type, gpu_type), 1.0) for gpu_type, _ in workers_by_node)
        return gpu * (self.apart if len(workers_by_node) > 1 else 1.0)


def policy(effect: PlacementEffect | None = None, **options: object) -> SetPolicy:
    """The shipped one, or one that knows the truth."""
    content = default_set_file()
    if effect is None:
        return SetPolicy(set_spec_of(content, "set"), content.weights, content.priors, **options)  # type: ignore[arg-type]
    return SetPolicy(set_spec_of(content, "set"), content.weights, speeds=SPEEDS, effect=effect, **options)  # type: ignore[arg-type]


def ring(number: int, job_type: str = RING, **changes: object) -> Job:
    values: dict[str, object] = {"kind": JobKind.ALLREDUCE, "min_ps": 0, "max_ps": 0, "ps_demand": Resources(0, 0)}
    return make_job(number, job_type, **{**values, **changes})


def ring_spec(number: int, **changes: object) -> WorkloadJob:
    values: dict[str, object] = {"kind": JobKind.ALLREDUCE, "min_ps": 0, "max_ps": 0, "requested": Allocation(1, 0)}
    return make_spec(number, **{"job_type": RING, "ps_demand": Resources(0, 0), **values, **changes})


def cluster(jobs: list[Job], *gpu_types: str, gpus: int = 8, placement: Placement | None = None) -> ClusterState:
    nodes = tuple(Node(f"n{index}", Resources(4000 * gpus, gpus), name) for index, name in enumerate(gpu_types))
    return ClusterState(0.0, nodes, tuple(jobs), 1200.0, placement=placement or {})


def decide(effect: PlacementEffect, state: ClusterState) -> Decision:
    return policy(effect).decide(state, Trigger.SLOT)


def types_of(decision: Decision, state: ClusterState, job_id: str) -> set[str]:
    assert decision.placement is not None
    gpu_type = {node.node_id: node.gpu_type for node in state.nodes}
    return {gpu_type[share.node_id] for share in decision.placement[job_id] if share.allocation.workers}


QUICK = settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])


@QUICK
@given(state=states(most_jobs=20), drawn=st.booleans())
def test_without_places_decisions_are_bit_for_bit_those_of_a_plan_that_knows_none(
    state: ClusterState, *, drawn: bool
) -> None:
    one, other = (policy(places=places, greedy=not drawn, seed=3) for places in (True, False))
    for _ in range(2):
        first, second = one.decide(state, Trigger.SLOT), other.decide(state, Trigger.SLOT)
        assert first == second
        assert first.placement is None
        report = [
            Progress(job.job_id, job.job_type, first.of(job.job_id), 600.0, 5000.0, 50.0, job.remaining_epochs)
            for job in state.jobs
        ]
        one.observe(report)
        other.observe(report)
    assert one.beliefs is not None
    assert other.beliefs is not None
    assert one.beliefs.digest() == other.beliefs.digest()
    assert "(places)" not in one.beliefs.snapshot()


def test_without_an_effect_of_places_a_replay_is_the_same_to_the_last_bit() -> None:
    workload = make_workload(*(make_spec(number, job_type="vgg-16") for number in range(12)))
    environment = Environment(4, speed_noise=0.2, gpu_types=(("v100", 2), ("k80", 2)))
    ends = [
        [job.end_seconds for job in replay(workload, environment, each, SPEEDS, compiled=False).outcomes]
        for each in (policy(), policy(places=False))
    ]
    assert ends[0] == ends[1]


def test_the_fast_type_goes_to_who_gains_most_by_it() -> None:
    other = "vgg16-256-allreduce"
    effect = Effect(factors={(RING, "slow"): 0.9, (other, "slow"): 0.2})
    state = cluster([ring(0), ring(1, other)], "slow", "fast")
    decision = decide(effect, state)
    assert types_of(decision, state, "job-0") == {"slow"}
    assert types_of(decision, state, "job-1") == {"fast"}


def test_of_two_alike_the_shorter_gets_the_fast_type() -> None:
    effect = Effect(factors={(RING, "slow"): 0.4})
    state = cluster([ring(0, remaining_epochs=900.0), ring(1, remaining_epochs=100.0)], "slow", "fast")
    decision = decide(effect, state)
    assert types_of(decision, state, "job-1") == {"fast"}
    assert types_of(decision, state, "job-0") == {"slow"}


def test_a_job_that_fits_no_type_alone_lies_on_several() -> None:
    effect = Effect(factors={(RING, "slow"): 0.4})
    state = cluster([ring(0, min_workers=12)], "slow", "fast")
    decision = decide(effect, state)
    assert types_of(decision, state, "job-0") == {"slow", "fast"}
    assert decision.of("job-0").workers >= 12


def test_nobody_grows_beyond_a_node_where_that_loses() -> None:
    state = cluster([ring(0)], "", "", gpus=4)
    together, apart = decide(Effect(apart=0.3), state), decide(Effect(), state)
    assert together.of("job-0").workers == 4
    assert together.placement is not None
    assert len(together.placement["job-0"]) == 1
    assert apart.of("job-0").workers > 4


def lying(*shares: tuple[str, str, int]) -> Placement:
    found: dict[str, tuple[Share, ...]] = {}
    for job_id, node, workers in shares:
        found[job_id] = (*found.get(job_id, ()), Share(node, Allocation(workers, 0)))
    return found


def running(number: int, workers: int, **changes: object) -> Job:
    size = Allocation(workers, 0)
    return ring(number, RING, current=size, min_workers=workers, max_workers=workers, **changes)


def test_running_jobs_stay_where_they_lose_nothing() -> None:
    placement = lying(("job-0", "n1", 3), ("job-1", "n0", 2))
    state = cluster([running(0, 3), running(1, 2)], "", "", gpus=4, placement=placement)
    assert decide(Effect(apart=0.3), state).placement == placement


@pytest.mark.parametrize(("stall", "moves"), [(10.0, True), (1e7, False)])
def test_a_job_moves_only_where_the_time_it_saves_is_longer_than_a_start(stall: float, moves: bool) -> None:
    placement = lying(("job-0", "n0", 2), ("job-0", "n1", 2))
    state = cluster([running(0, 4, remaining_epochs=1e5)], "", "", gpus=4, placement=placement)
    knowing = policy()
    assert knowing.beliefs is not None
    for _ in range(40):
        shown = Progress("job-0", RING, Allocation(4, 0), 600.0, 600.0, 1.0, 9.0, paused_seconds=0.0)
        knowing.observe([replace(shown, places=(("", 4),), samples=6e5)])
        knowing.observe([replace(shown, places=(("", 2), ("", 2)), samples=1e5)])
    knowing.observe([Progress("new", RING, Allocation(1, 0), 1.0, 100.0, 1.0, 9.0, paused_seconds=41.0 * stall)])
    found = knowing.decide(state, Trigger.SLOT).placement
    assert found is not None
    assert (len(found["job-0"]) == 1) == moves


@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    st.lists(st.sampled_from((RING, "vgg16-256-allreduce", "vgg-16")), min_size=1, max_size=6),
    st.integers(1, 3),
    st.integers(0, 3),
    st.sampled_from((0.0, 300.0)),
)
def test_every_placement_is_possible_and_every_job_ends(types: list[str], fast: int, slow: int, pause: float) -> None:
    specs = [
        make_spec(number, job_type=name) if name == "vgg-16" else ring_spec(number, job_type=name)
        for number, name in enumerate(types)
    ]
    environment = Environment(
        fast + slow,
        gpus_per_node=4,
        cpus_per_node=16,
        decide_on=DecideOn.EVENT,
        gpu_types=tuple((name, count) for name, count in (("v100", fast), ("k80", slow)) if count),
        resize_seconds=pause,
        resume_seconds=pause,
    )
    result = replay(make_workload(*specs), environment, policy(), SPEEDS, placement_effect=FittedPlacementEffect())
    assert all(outcome.jct_seconds is not None and outcome.jct_seconds > 0.0 for outcome in result.outcomes)


def test_what_is_drawn_greedily_is_what_is_planned() -> None:
    effect = Effect(apart=0.4, factors={(RING, "slow"): 0.4})
    state = cluster([ring(number, remaining_epochs=100.0 + number) for number in range(5)], "slow", "fast", "fast")
    planned = decide(effect, state)
    assert policy(effect).decide_recorded(state, Trigger.SLOT)[0] == planned
    drawn = policy(effect, greedy=False, seed=1).decide(state, Trigger.SLOT)
    assert drawn.placement is not None
    assert set(drawn.placement) == set(drawn.allocation)


def learned(steps: int = 6) -> tuple[SetPolicy, Simulation]:
    """A policy that has seen jobs apart and on two types, and the cluster that it saw."""
    specs = [ring_spec(number, total_epochs=1e6) for number in range(4)]
    environment = Environment(3, gpus_per_node=4, cpus_per_node=16, gpu_types=(("v100", 2), ("k80", 1)))
    simulation = Simulation(make_workload(*specs), environment, SPEEDS, FittedPlacementEffect())
    found = policy()
    for _ in range(steps):
        if simulation.finished:
            break
        found.observe(simulation.apply(found.decide(*simulation.observe())))
    return found, simulation


def test_what_is_believed_of_places_survives_a_restart() -> None:
    before, simulation = learned()
    assert before.beliefs is not None
    assert before.beliefs.places.reports > 0
    after = policy()
    assert after.beliefs is not None
    after.beliefs.go_on_from(json.loads(json.dumps(before.beliefs.checkpoint())))
    assert after.beliefs.digest() == before.beliefs.digest()
    state = simulation.observe()[0]
    assert after.decide(state, Trigger.SLOT) == before.decide(state, Trigger.SLOT)


def test_the_cluster_goes_on_from_a_snapshot_with_its_tasks_where_they_lay() -> None:
    _, simulation = learned()
    state = simulation.observe()[0]
    again = Simulation(simulation.workload, simulation.environment, SPEEDS, FittedPlacementEffect())
    again.restore(json.loads(json.dumps(simulation.snapshot())))
    assert again.observe()[0] == state
    assert state.placement


def test_a_move_costs_what_a_resize_costs() -> None:
    spec = ring_spec(0, total_epochs=1e6)
    environment = Environment(2, resize_seconds=90.0)
    simulation = Simulation(make_workload(spec), environment, SPEEDS, FittedPlacementEffect())
    paused = []
    for node in ("node-0", "node-0", "node-1"):
        size = Allocation(1, 0)
        decision = Decision({spec.job_id: size}, {spec.job_id: (Share(node, size),)})
        (entry,) = simulation.apply(decision)
        assert entry.places == (("", 1),)
        paused.append(entry.paused_seconds)
    assert paused == [0.0, 0.0, 90.0]


def test_it_says_why_a_job_is_packed_and_has_its_type() -> None:
    effect = Effect(apart=0.45, factors={(RING, "k80"): 0.25})
    state = cluster([ring(0, max_workers=4)], "k80", "v100", gpus=8)
    said = reasons_of(policy(effect), state, "job-0")
    assert "it lies on v100 GPUs: at its size it is believed to train 4 times as fast there as on k80 GPUs" in said
    assert any(
        line.endswith("packed on one node: on two they are believed to train 0.45 times as fast") for line in said
    )
    wide = reasons_of(policy(Effect()), cluster([ring(0)], "", "", gpus=4), "job-0")
    assert wide == ["its 8 workers lie on 2 nodes: they are believed to train 1 times as fast as on one"]


def test_where_no_task_is_moved_a_running_job_keeps_to_its_type_and_grows_around_itself() -> None:
    effect = Effect(apart=0.5, factors={(RING, "slow"): 0.2})
    placement = lying(("job-0", "n0", 2))
    free, kept = (
        cluster(
            [ring(0, current=Allocation(2, 0), moves=moves, remaining_epochs=1e5)],
            *("slow", "slow", "fast"),
            gpus=4,
            placement=placement,
        )
        for moves in (Moves.FREELY, Moves.NEVER)
    )
    assert types_of(decide(effect, free), free, "job-0") == {"fast"}
    decision = decide(effect, kept)
    assert types_of(decision, kept, "job-0") == {"slow"}
    assert decision.placement is not None
    assert decision.placement["job-0"][0] == Share("n0", Allocation(4, 0))
    assert any(
        reason == "it keeps to slow GPUs while it runs: this cluster moves no tasks"
        for reason in reasons_of(policy(effect), kept, "job-0")
    )


def test_where_tasks_move_with_the_size_alone_the_same_size_stays() -> None:
    """It would be faster on one node; but the cluster would not move it for that."""
    placement = lying(("job-0", "n0", 2), ("job-0", "n1", 2))
    found = []
    for moves in (Moves.FREELY, Moves.WITH_SIZE):
        state = cluster([running(0, 4, moves=moves)], "", "", gpus=4, placement=placement)
        found.append(decide(Effect(apart=0.3), state).placement)
    assert found[0] is not None
    assert len(found[0]["job-0"]) == 1
    assert found[1] == placement
    larger = ring(0, RING, current=Allocation(2, 0), min_workers=4, max_workers=4, moves=Moves.WITH_SIZE)
    state = cluster([larger], "", "", gpus=4, placement=lying(("job-0", "n0", 1), ("job-0", "n1", 1)))
    anew = decide(Effect(apart=0.3), state).placement
    assert anew is not None
    assert len(anew["job-0"]) == 1


def test_a_job_that_lies_on_two_types_counts_where_most_of_it_lies() -> None:
    effect = Effect(factors={(RING, "slow"): 0.5})
    placement = lying(("job-0", "n0", 1), ("job-0", "n1", 3), ("job-1", "n1", 1))
    jobs = [running(0, 4, moves=Moves.NEVER), running(1, 1, moves=Moves.NEVER), ring(2, max_workers=3)]
    state = cluster(jobs, "slow", "fast", gpus=4, placement=placement)
    decision = decide(effect, state)
    assert decision.placement is not None
    assert set(decision.placement["job-0"]) == {Share("n0", Allocation(1, 0)), Share("n1", Allocation(3, 0))}
    assert decision.placement["job-2"] == (Share("n0", Allocation(3, 0)),)
    assert any("its 4 workers lie on 2 nodes" in reason for reason in reasons_of(policy(effect), state, "job-0"))


CPU_ONLY = Node("c", Resources(32_000, 0))


def with_cpu_nodes(state: ClusterState, first: bool = False) -> ClusterState:
    return replace(state, nodes=(CPU_ONLY, *state.nodes) if first else (*state.nodes, CPU_ONLY))


@pytest.mark.parametrize("first", [True, False])
def test_parameter_servers_on_nodes_without_gpus_leave_a_job_where_its_workers_are(first: bool) -> None:
    lies = {"job-0": (Share("n0", Allocation(1, 0)), Share("c", Allocation(0, 3)))}
    held = make_job(0, current=Allocation(1, 3), moves=Moves.NEVER)
    state = with_cpu_nodes(cluster([held, ring(1)], "slow", "fast", gpus=4, placement=lies), first)
    decision = decide(Effect(), state)
    assert decision.of("job-0").workers >= 1
    assert types_of(decision, state, "job-0") == {"slow"}


def test_parameter_servers_go_to_nodes_without_gpus() -> None:
    nodes = tuple(Node(f"n{index}", Resources(2000, 1), "t4") for index in range(2))
    job = make_job(0, worker_demand=Resources(2000, 1), ps_demand=Resources(2000, 0), min_ps=1)
    state = ClusterState(0.0, (*nodes, CPU_ONLY), (job,), 1200.0, placement={})
    without = policy(Effect(), places=False).decide(replace(state, placement=None), Trigger.SLOT).of("job-0")
    assert without.workers == 2
    found = decide(Effect(), state)
    assert found.of("job-0") == without
    assert found.placement is not None
    assert {share.node_id for share in found.placement["job-0"] if share.allocation.ps} == {"c"}


def test_a_job_whose_type_is_too_small_for_it_keeps_what_it_has() -> None:
    lies = lying(("job-0", "n0", 5), ("job-0", "n1", 3))
    job = running(0, 8, moves=Moves.NEVER)
    nodes = (Node("n0", Resources(32_000, 6), "t4"), Node("n1", Resources(32_000, 8), "a100"))
    state = ClusterState(0.0, nodes, (job,), 1200.0, placement=lies)
    assert decide(Effect(), state).of("job-0").workers >= 8


def test_a_node_without_gpus_changes_nothing_in_who_gets_the_fast_ones() -> None:
    effect = Effect(factors={(RING, "slow"): 0.3})
    long, short = ring(0, remaining_epochs=1e6), ring(1, remaining_epochs=400.0)
    state = cluster([long, short], "slow", "fast", gpus=8)
    for each in (state, with_cpu_nodes(state), with_cpu_nodes(state, first=True)):
        assert types_of(decide(effect, each), each, "job-1") == {"fast"}


def test_nodes_without_gpus_are_dealt_out_by_gpus_and_no_cpu_is_granted_twice() -> None:
    gpu_nodes = [Node(f"n{index}", Resources(8000, 8), "t4" if index < 3 else "a100") for index in range(4)]
    cpu_nodes = [Node(f"c{index}", Resources(8000, 0)) for index in range(4)]
    pools = PlaceTables().pools(ClusterState(0.0, (*cpu_nodes, *gpu_nodes), (), 1200.0))
    assert {pool.name: sum(not node.capacity.gpu for node in pool.nodes) for pool in pools} == {"t4": 3, "a100": 1}
    assert sorted(node.node_id for pool in pools for node in pool.nodes) == sorted(
        node.node_id for node in (*cpu_nodes, *gpu_nodes)
    )


def test_the_fewest_nodes_are_those_with_most_room_and_the_first_that_holds_all() -> None:
    capacities = [2, 5, 3, 5]
    pool = GpuPool(
        ALL,
        tuple(
            Node(str(number), Resources(64_000, free_capacity), str(free_capacity))
            for number, free_capacity in enumerate(capacities)
        ),
    )
    demand = Resources(1000, 1)
    found = [pool.fewest(demand, workers) for workers in (0, 1, 3, 5, 9, 15, 16)]
    one = ((), (("2", 1),), (("5", 3),), (("5", 5),))
    assert found == [*one, (("5", 5), ("5", 4)), (("5", 5), ("5", 5), ("3", 3), ("2", 2)), None]
    assert pool.fewest(Resources(0), 40) == (("2", 40),)


def test_when_tasks_move_is_kept_in_the_log() -> None:
    state = cluster([ring(0, moves=Moves.NEVER), ring(1)], "slow")
    coded = json.loads(json.dumps(encode_state(state)))
    assert decode_state(coded) == state
    assert [job.get("moves") for job in coded["jobs"]] == ["never", None]


def test_a_state_without_jobs_or_nodes_has_an_empty_placement() -> None:
    assert decide(Effect(), cluster([], "v100")) == Decision({}, {})
    assert decide(Effect(), cluster([ring(0)])) == Decision({}, {})
    assert decide(Effect(), replace(make_state([make_job(0)]), placement={})).of("job-0") != SUSPENDED
