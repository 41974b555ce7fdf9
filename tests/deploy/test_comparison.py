"""Which job the demo's report draws."""

from deploy.local.comparison import telling_job
from deploy.local.evaluation import Score

Timeline = list[tuple[float, int, int]]


def resized(times: int, workers: int) -> Timeline:
    """A job that waits, trains with as many workers or one more, and ends."""
    spans = [(60.0 * (1 + at), workers + at % 2, 1) for at in range(times)]
    return [(0.0, 0, 0), *spans, (9000.0, 0, 0)]


def score(timeline: dict[str, Timeline]) -> Score:
    count = len(timeline)
    return Score(count, count, 1.0, timeline, dict.fromkeys(timeline, "vgg-16"), dict.fromkeys(timeline, 0.0))


def test_the_job_is_the_middle_one_of_those_with_several_workers_and_some_resizes() -> None:
    north = score({"alone": resized(20, 0), "calm": resized(1, 4), "often": resized(15, 4), "usual": resized(6, 4)})
    south = score({"seldom": resized(4, 2)})
    assert telling_job({"north": north, "south": south}).job_id == "usual"


def test_without_a_usual_job_it_is_the_one_that_was_resized_most() -> None:
    alone = score({"one": resized(2, 1), "two": resized(3, 0)})
    assert telling_job({"north": alone}).job_id == "two"
