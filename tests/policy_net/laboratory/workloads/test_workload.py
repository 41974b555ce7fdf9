import pytest
from worlds import make_spec, make_workload

from policy_net.domain import Allocation, JobKind, Resources
from policy_net.errors import BadInput
from policy_net.laboratory.simulation.environment import Environment
from policy_net.laboratory.workloads.workload import Workload


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"total_epochs": 0.0}, "job job-0: total_epochs is 0.0"),
        ({"total_epochs": float("nan")}, "total_epochs is nan"),
        ({"samples_per_epoch": -1.0}, "samples_per_epoch is -1.0"),
        ({"declared_epochs": 0.0}, "declared_epochs is 0.0"),
        ({"submit_time_seconds": -5.0}, "submit_time_seconds is -5.0"),
        ({"submit_time_seconds": float("inf")}, "submit_time_seconds is inf"),
        ({"max_workers": 0}, "max_workers is 0: use 1 to 16"),
        ({"max_ps": 17}, "max_ps is 17: use 1 to 16"),
        ({"max_workers": 17}, "max_workers is 17: use 1 to 16"),
        (
            {"kind": JobKind.ALLREDUCE, "max_ps": 0, "min_ps": 0, "requested": Allocation(1), "max_workers": 65},
            "max_workers is 65: use 1 to 64",
        ),
        ({"worker_demand": Resources(-1, 0)}, "worker demand .* is negative"),
    ],
)
def test_a_job_that_makes_no_sense_is_refused(changes: dict[str, object], message: str) -> None:
    with pytest.raises(BadInput, match=message):
        make_spec(**changes)


def test_a_workload_has_jobs_in_order_with_distinct_ids() -> None:
    with pytest.raises(BadInput, match="'w' has no jobs"):
        Workload("w", ())
    with pytest.raises(BadInput, match="'job-0' occurs twice"):
        make_workload(make_spec(0), make_spec(0))
    with pytest.raises(BadInput, match="'job-1' is submitted before job 'job-0'"):
        make_workload(make_spec(0, submit_time_seconds=5.0), make_spec(1, submit_time_seconds=4.0))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"nodes": 0}, "nodes is 0: use 1 or more"),
        ({"gpus_per_node": -1}, "gpus_per_node is -1: use 0 or more"),
        ({"cpus_per_node": 0}, "cpus_per_node is 0"),
        ({"slot_seconds": 0.0}, "slot_seconds is 0.0"),
        ({"slot_seconds": float("inf")}, "slot_seconds is inf"),
        ({"debounce_seconds": -1.0}, "debounce_seconds is -1.0"),
        ({"speed_noise": float("nan")}, "speed_noise is nan"),
    ],
)
def test_an_environment_that_makes_no_sense_is_refused(changes: dict[str, object], message: str) -> None:
    with pytest.raises(BadInput, match=message):
        Environment(**{"nodes": 1, **changes})  # type: ignore[arg-type]
