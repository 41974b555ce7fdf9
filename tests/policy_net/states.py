"""States for tests: hypothesis strategies and small hand-made clusters."""

from hypothesis import strategies as st

from policy_net.domain import CapacityMode, ClusterState, Job, Node, Resources

GPU_WORKER = Resources(2000, 1)
CPU_TASK = Resources(2000, 0)
TYPES = ("resnet-50", "vgg-16", "never-seen")


def make_job(number: int, job_type: str = "resnet-50", **changes: object) -> Job:
    values: dict[str, object] = {
        "job_id": f"job-{number}",
        "job_type": job_type,
        "submit_time_seconds": float(number),
        "worker_demand": GPU_WORKER,
        "ps_demand": CPU_TASK,
        "samples_per_epoch": 100.0,
        "total_epochs": 1000.0,
        "remaining_epochs": 400.0,
    }
    return Job(**{**values, **changes})  # type: ignore[arg-type]


def make_state(
    jobs: list[Job], nodes: int = 4, mode: CapacityMode = CapacityMode.NODES, time_seconds: float = 0.0
) -> ClusterState:
    return ClusterState(
        time_seconds, tuple(Node(f"n{i}", Resources(8000, 2)) for i in range(nodes)), tuple(jobs), 1200.0, mode
    )


@st.composite
def jobs(draw: st.DrawFn, number: int) -> Job:
    return make_job(
        number,
        draw(st.sampled_from(TYPES)),
        worker_demand=draw(st.sampled_from([GPU_WORKER, CPU_TASK, Resources(3000, 2)])),
        ps_demand=draw(st.sampled_from([CPU_TASK, Resources(1000, 0)])),
        max_workers=draw(st.integers(0, 16)),
        max_ps=draw(st.integers(0, 16)),
        remaining_epochs=draw(st.floats(1e-3, 1e5)),
        run_seconds=draw(st.floats(0, 1e6)),
    )


@st.composite
def states(draw: st.DrawFn, most_jobs: int = 50) -> ClusterState:
    count = draw(st.integers(0, most_jobs))
    return make_state(
        [draw(jobs(number)) for number in range(count)],
        draw(st.integers(0, 12)),
        draw(st.sampled_from(list(CapacityMode))),
    )
