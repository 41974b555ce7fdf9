"""Progress reports for tests of beliefs."""

from hypothesis import strategies as st

from policy_net.domain import Allocation, Progress


def seen(
    ps: int, workers: int, speed: float, seconds: float = 1200.0, job_type: str = "a", finished: bool = False
) -> Progress:
    samples = speed * seconds
    return Progress("job", job_type, Allocation(workers, ps), seconds, samples, samples / 100, 1e6, finished)


reports = st.builds(
    lambda ps, workers, samples, seconds, job_type: Progress(
        "job", job_type, Allocation(workers, ps), seconds, samples, 1.0, 1.0
    ),
    st.integers(0, 16),
    st.integers(0, 16),
    st.just(0.0) | st.floats(1e-6, 1e9),
    st.just(0.0) | st.floats(1e-3, 1e6),
    st.sampled_from("ab"),
)
