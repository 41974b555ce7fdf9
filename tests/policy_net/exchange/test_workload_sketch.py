"""A sketch comes over the wire and out of a database as it was, and one that cannot be is refused in a line."""

import json
import math
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from policy_net.domain import JobKind
from policy_net.errors import BadInput
from policy_net.exchange.workload_sketch import KindSketch, WorkloadSketch

PS = KindSketch(JobKind.PS, 0.75, (60.0, 120.0, 240.0, 480.0, 960.0), (1, 1, 2, 4, 8), (1, 1, 1, 2, 2))
RING = KindSketch(JobKind.ALLREDUCE, 0.25, (60.0,) * 5, (1, 2, 4, 8, 16), (0,) * 5)
SKETCH = WorkloadSketch(4, 2, 8, 40.0, (0.125,) * 8, (PS, RING))


def rising(least: float, most: float) -> st.SearchStrategy[tuple[float, ...]]:
    return st.lists(st.floats(least, most), min_size=5, max_size=5).map(lambda values: tuple(sorted(values)))


KINDS = st.builds(
    KindSketch,
    st.just(JobKind.PS),
    st.floats(0.6, 1.0),
    rising(1.0, 1e6),
    rising(1, 16).map(lambda values: tuple(map(int, values))),
    rising(1, 16).map(lambda values: tuple(map(int, values))),
)
SKETCHES = st.builds(
    WorkloadSketch,
    st.integers(1, 2000),
    st.integers(1, 8),
    st.integers(4, 128),
    st.floats(0.01, 1e5),
    st.sampled_from([(), (0.1,) * 8, (0.0,) * 7 + (1.0,)]),
    st.tuples(KINDS),
)


@given(SKETCHES)
def test_it_comes_back_from_the_wire_and_from_json(sketch: WorkloadSketch) -> None:
    assert WorkloadSketch.of(sketch.message()) == sketch
    assert WorkloadSketch.from_json(json.loads(json.dumps(sketch.to_json()))) == sketch


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"nodes": 0}, "nodes is 0"),
        ({"nodes": 10**6}, "nodes is 1e+06"),
        ({"gpus_per_node": 0}, "gpus_per_node is 0"),
        ({"cpus_per_node": 0}, "cpus_per_node is 0"),
        ({"jobs_a_day": math.nan}, "jobs_a_day is nan"),
        ({"jobs_a_day": math.inf}, "jobs_a_day is inf"),
        ({"jobs_a_day": 0.0}, "jobs_a_day is 0"),
        ({"day_shares": (1.0,)}, "1 day_shares"),
        ({"day_shares": (math.nan,) * 8}, "a day share is nan"),
        ({"day_shares": (0.9,) * 8}, "add up to 7.2"),
        ({"kinds": ()}, "0 kinds"),
        ({"kinds": (PS, PS)}, "2 kinds, 1 different"),
        ({"kinds": (RING,)}, "add up to 0.25"),
    ],
)
def test_what_cannot_be_is_refused(changes: dict[str, object], said: str) -> None:
    with pytest.raises(BadInput, match=said.replace("+", r"\+")) as caught:
        replace(SKETCH, **changes)  # type: ignore[arg-type]
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"share": 0.0}, "share is 0.0"),
        ({"share": math.nan}, "share is nan"),
        ({"run_seconds": (1.0,)}, "1 quantiles"),
        ({"run_seconds": (0.0, 1.0, 2.0, 3.0, 4.0)}, "run_seconds is 0"),
        ({"run_seconds": (5.0, 4.0, 3.0, 2.0, 1.0)}, "let them rise"),
        ({"run_seconds": (1.0, 2.0, 3.0, 4.0, math.inf)}, "run_seconds is inf"),
        ({"workers": (0, 1, 1, 1, 1)}, "workers is 0"),
        ({"workers": (1, 1, 1, 1, 17)}, "workers is 17"),
        ({"ps": (0, 1, 1, 1, 1)}, "ps is 0"),
        ({"kind": JobKind.ALLREDUCE}, "ps is 1"),
    ],
)
def test_a_kind_that_cannot_be_is_refused(changes: dict[str, object], said: str) -> None:
    with pytest.raises(BadInput, match=said):
        replace(PS, **changes)  # type: ignore[arg-type]


def test_more_workers_may_be_asked_for_without_servers() -> None:
    ring = replace(PS, kind=JobKind.ALLREDUCE, ps=(0,) * 5, workers=(1, 2, 16, 40, 64))
    assert ring.workers[-1] == 64
    with pytest.raises(BadInput, match="workers is 65"):
        replace(ring, workers=(1, 2, 16, 40, 65))


def test_an_unknown_kind_and_other_json_are_refused() -> None:
    message = SKETCH.message()
    message.kinds[0].kind = "rocket"
    with pytest.raises(BadInput, match="'rocket': use one of"):
        WorkloadSketch.of(message)
    with pytest.raises(BadInput, match="no sketch of a workload"):
        WorkloadSketch.from_json({"nodes": 3})
