import numpy as np
import pytest
from states import make_job, make_state

from policy_net.domain import Allocation, Progress
from policy_net.learning.reward import paper_reward, progress_shares, slot_utility


class FlatSpeeds:
    """16 samples/s wherever a job can train."""

    def samples_per_second(self, job_type: str, ps: int, workers: int) -> float:
        return 16.0 if ps and workers else 0.0

    def grid(self, job_type: str) -> np.ndarray:
        grid = np.zeros((17, 17))
        grid[1:, 1:] = 16.0
        return grid


def progress(number: int, epochs: float, seconds: float = 100.0, finished: bool = False) -> Progress:
    return Progress(f"job-{number}", "resnet-50", Allocation(1, 1), seconds, epochs * 100.0, epochs, 400.0, finished)


STATE = make_state([make_job(0), make_job(1)])


def test_running_everybody_at_the_believed_best_is_one() -> None:
    entries = [progress(number, 16.0) for number in range(2)]  # 0.16 epochs/s for 100 s
    assert slot_utility(STATE, entries, FlatSpeeds(), 100.0).reward == pytest.approx(1.0)


def test_a_sixteenth_of_the_speed_is_half_of_the_utility() -> None:
    entries = [progress(number, 1.0) for number in range(2)]
    assert slot_utility(STATE, entries, FlatSpeeds(), 100.0).reward == pytest.approx(0.5)


def test_a_job_that_waits_counts_in_the_best_but_not_in_the_measured() -> None:
    assert slot_utility(STATE, [progress(0, 16.0)], FlatSpeeds(), 100.0).reward == pytest.approx(0.5)


def test_a_job_that_finishes_early_counts_with_its_rate() -> None:
    state = make_state([make_job(0)])
    entry = progress(0, 1.6, seconds=10.0, finished=True)
    assert slot_utility(state, [entry], FlatSpeeds(), 100.0).reward == pytest.approx(1.0)


def test_the_length_of_an_interval_does_not_matter() -> None:
    short = slot_utility(STATE, [progress(0, 4.0, 50.0)], FlatSpeeds(), 50.0).reward
    long = slot_utility(STATE, [progress(0, 8.0, 100.0)], FlatSpeeds(), 100.0).reward
    assert short == pytest.approx(long)


def test_an_empty_cluster_is_worth_nothing() -> None:
    assert slot_utility(make_state([]), [], FlatSpeeds(), 100.0).reward == 0.0


def test_the_papers_reward_is_the_sum_of_fractions() -> None:
    assert paper_reward(STATE, [progress(0, 16.0), progress(1, 4.0)]) == pytest.approx(20.0 / 1000.0)


def test_shares_of_progress_add_up_to_the_paper_s_reward_in_the_order_of_the_jobs() -> None:
    entries = [progress(1, 8.0)]
    shares = progress_shares(STATE, entries)
    assert shares.job_ids == ("job-0", "job-1")
    assert shares.efficiency.tolist() == [0.0, 8.0 / STATE.jobs[1].total_epochs]
    assert shares.reward == pytest.approx(paper_reward(STATE, entries))
