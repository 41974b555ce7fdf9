import pickle

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from policy_net.domain import JobKind
from policy_net.errors import BadInput
from policy_net.laboratory.catalogue import ALLREDUCE_MODEL_NAMES, CATALOGUE, model_names
from policy_net.laboratory.speeds.placement_effect import (
    FITTED_SPREADS,
    GPU_SPEEDS,
    GPU_TYPES,
    FittedPlacementEffect,
    SpreadConstants,
    compute_speed,
    default_placement_effect,
    spread_constants,
    spread_slowdown,
)

EFFECT = default_placement_effect()

shapes = st.lists(st.tuples(st.sampled_from(["", *GPU_TYPES]), st.integers(1, 4)), min_size=1, max_size=4)


def alike(nodes: list[int], gpu_type: str = "") -> list[tuple[str, int]]:
    return [(gpu_type, workers) for workers in nodes]


@settings(deadline=None)
@given(st.sampled_from(list(CATALOGUE)), shapes)
def test_every_place_has_a_speed_above_zero_again_and_again_also_in_another_process(
    job_type: str, shape: list[tuple[str, int]]
) -> None:
    speed = EFFECT.relative_speed(job_type, shape)
    assert 0 < speed < 10
    assert EFFECT.relative_speed(job_type, shape) == speed
    assert pickle.loads(pickle.dumps(EFFECT)).relative_speed(job_type, shape) == speed  # noqa: S301  (our own bytes)


@settings(deadline=None)
@given(st.sampled_from(ALLREDUCE_MODEL_NAMES), st.lists(st.integers(1, 4), min_size=1, max_size=4))
def test_apart_is_never_faster_than_on_one_node(job_type: str, nodes: list[int]) -> None:
    assert EFFECT.relative_speed(job_type, alike([sum(nodes)])) == 1.0
    assert EFFECT.relative_speed(job_type, alike(nodes)) <= 1.0


@settings(deadline=None)
@given(st.sampled_from(list(CATALOGUE)), shapes, st.randoms())
def test_the_order_of_nodes_makes_no_difference(job_type: str, shape: list[tuple[str, int]], random) -> None:
    mixed = random.sample(shape, len(shape))
    assert EFFECT.relative_speed(job_type, mixed) == pytest.approx(EFFECT.relative_speed(job_type, shape))


def test_measured_orders_of_places_come_out_even_where_they_are_not_monotone() -> None:
    """Pollux: BERT on 4 T4s, 43.2, 15.3 and 24.5 samples/s. Chronus: VGG-16, 1, 0.58 and 0.32."""
    bert = [EFFECT.relative_speed("bert-128-allreduce", alike(nodes)) for nodes in ([4], [2, 2], [1, 1, 1, 1])]
    assert bert == pytest.approx([1.0, 15.3 / 43.2, 24.5 / 43.2], rel=0.1)
    vgg = [EFFECT.relative_speed("vgg16-64-allreduce", alike(nodes)) for nodes in ([4], [2, 2], [1, 1, 1, 1])]
    assert vgg == pytest.approx([1.0, 0.58, 0.32], rel=0.2)


@pytest.mark.parametrize("kind", [JobKind.PS, JobKind.ASYNC])
def test_ps_jobs_run_alike_wherever_their_workers_lie(kind: JobKind) -> None:
    for name in model_names(kind):
        assert EFFECT.relative_speed(name, alike([1, 1, 1, 1])) == 1.0


def test_places_can_be_left_out_of_account() -> None:
    only_gpus = FittedPlacementEffect(apart=False)
    assert only_gpus.relative_speed("vgg16-64-allreduce", alike([1, 1, 1, 1])) == 1.0
    assert only_gpus.relative_speed("vgg16-64-allreduce", alike([4], "t4")) < 1.0


def test_a_slowdown_by_hand() -> None:
    constants = SpreadConstants(0.5, 0.25, 1.0, 0.125)
    assert spread_slowdown(constants, 8, 1) == 0
    assert spread_slowdown(constants, 8, 2) == 0.5 + 0.25 * 2
    assert spread_slowdown(constants, 12, 4) == 1.0 + 0.125 * 2


def test_a_family_without_measurements_is_like_the_nearest_of_its_kind() -> None:
    assert spread_constants(CATALOGUE["gpt2-256-allreduce"]) is FITTED_SPREADS["bert"]
    assert spread_constants(CATALOGUE["vgg16-64-allreduce"]) is FITTED_SPREADS["vgg16"]


@pytest.mark.parametrize("name", ["resnet50-256-allreduce", "vgg-16"])
def test_the_slowest_gpu_sets_the_pace_of_jobs_in_step(name: str) -> None:
    mixed = EFFECT.relative_speed(name, [("a100", 1), ("k80", 1)])
    assert mixed == pytest.approx(EFFECT.relative_speed(name, alike([1, 1], "k80")))
    assert mixed < EFFECT.relative_speed(name, alike([1, 1], "a100"))


def test_asynchronous_workers_keep_their_own_pace() -> None:
    slow, mixed, fast = (
        EFFECT.relative_speed("vgg-16-async", shape)
        for shape in (alike([1, 1], "k80"), [("a100", 1), ("k80", 1)], alike([1, 1], "a100"))
    )
    assert slow < mixed < fast


def test_a_slow_gpu_hurts_less_the_more_a_job_waits_for_the_network() -> None:
    alone = EFFECT.relative_speed("resnet50-64-allreduce", alike([1], "k80"))
    many = EFFECT.relative_speed("resnet50-64-allreduce", alike([16], "k80"))
    assert GPU_SPEEDS[next(iter(GPU_SPEEDS))]["k80"] < alone < many < 1


def test_gpus_without_a_type_and_those_measured_on_change_nothing() -> None:
    for name in ("bert-64-allreduce", "gpt2-128-allreduce"):
        assert EFFECT.relative_speed(name, alike([2], "A100")) == EFFECT.relative_speed(name, alike([2])) == 1.0
    assert EFFECT.relative_speed("wlm", alike([2], "p100")) == 1.0


def test_cpu_models_do_not_care_for_gpus() -> None:
    assert EFFECT.relative_speed("dssm", alike([4], "k80")) == 1.0


def test_an_unknown_job_type_is_left_alone() -> None:
    assert EFFECT.relative_speed("something", alike([1, 1], "k80")) == 1.0


def test_an_unknown_gpu_type_is_named_with_those_known() -> None:
    with pytest.raises(BadInput, match="'tpu' has no known speed; use one of a100, v100, t4, p100, k80"):
        EFFECT.relative_speed("vgg-16", [("tpu", 1)])
    assert compute_speed(CATALOGUE["vgg-16"], "P100") == 1.0
