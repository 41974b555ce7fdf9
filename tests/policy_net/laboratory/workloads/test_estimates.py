import numpy as np
import pytest
from worlds import PairSpeeds, make_spec, make_workload, one_pair_each

from policy_net.errors import BadInput
from policy_net.laboratory.simulation.engine import Simulation
from policy_net.laboratory.simulation.environment import Environment
from policy_net.laboratory.simulation.simulated_job import LEAST_SHOWN_EPOCHS
from policy_net.laboratory.workloads.workload import Estimates, parse_durations, with_estimates

MANY = make_workload(*(make_spec(number) for number in range(2000)))


def ratios(estimates: Estimates, seed: int = 0) -> np.ndarray:
    changed = with_estimates(MANY, estimates, seed)
    assert [job.total_epochs for job in changed.jobs] == [job.total_epochs for job in MANY.jobs]
    return np.array([job.shown_epochs / job.total_epochs for job in changed.jobs])


def test_an_epoch_error_is_uniform_around_the_truth() -> None:
    error = ratios(Estimates(epoch_error=0.2))
    assert 0.8 <= error.min() < 0.81
    assert 1.19 < error.max() <= 1.2
    assert error.mean() == pytest.approx(1.0, abs=0.01)


def test_a_lognormal_error_has_median_one_and_the_standard_deviation_asked_for() -> None:
    error = np.log(ratios(Estimates(duration_sigma=1.0)))
    assert np.median(error) == pytest.approx(0.0, abs=0.06)
    assert error.std() == pytest.approx(1.0, abs=0.05)


def test_the_same_seed_errs_in_the_same_way_and_another_does_not() -> None:
    estimates = Estimates(duration_sigma=1.0)
    assert (ratios(estimates, 1) == ratios(estimates, 1)).all()
    assert (ratios(estimates, 1) != ratios(estimates, 2)).mean() > 0.99


def test_a_job_errs_in_the_same_way_whatever_other_jobs_there_are() -> None:
    few = make_workload(*MANY.jobs[5:7])
    estimates = Estimates(epoch_error=0.3)
    assert with_estimates(few, estimates, 4).jobs == with_estimates(MANY, estimates, 4).jobs[5:7]


def test_what_was_assumed_is_noted_and_nothing_is_where_nothing_was() -> None:
    assert with_estimates(MANY, Estimates(), 0) is MANY
    assert "± 20%" in with_estimates(MANY, Estimates(0.2), 0).notes[-1]
    assert "σ = 1" in with_estimates(MANY, parse_durations("lognormal:1"), 0).notes[-1]
    assert "unknown" in with_estimates(MANY, parse_durations("unknown"), 0).notes[-1]


def test_a_job_of_unknown_work_shows_as_much_again_as_it_has_trained_and_never_nothing() -> None:
    slots = 50
    work = make_workload(make_spec(total_epochs=slots * 12.0))
    simulation = Simulation(with_estimates(work, parse_durations("unknown"), 0), Environment(2), PairSpeeds())
    for slot in range(slots):
        state, _ = simulation.observe()
        (job,) = state.jobs
        trained = slot * 12.0
        assert not job.work_known
        assert job.remaining_epochs == max(trained, LEAST_SHOWN_EPOCHS) > 0
        assert job.total_epochs == trained + job.remaining_epochs
        simulation.apply(one_pair_each(state))
    assert simulation.finished
    assert trained > LEAST_SHOWN_EPOCHS  # both sides of the floor were seen


@pytest.mark.parametrize(
    ("text", "epoch_error", "message"),
    [
        ("guessed", 0.0, "durations is 'guessed': use known, lognormal:SIGMA"),
        ("lognormal", 0.0, "durations is 'lognormal'"),
        ("lognormal:x", 0.0, "durations is 'lognormal:x'"),
        ("lognormal:nan", 0.0, "durations is 'lognormal:nan'"),
        ("lognormal:-1", 0.0, "sigma is -1.0: use a number from 0 to 5"),
        ("lognormal:inf", 0.0, "sigma is inf"),
        ("known:1", 0.0, "durations is 'known:1'"),
        ("known", 1.0, "epoch-error is 1.0: use a number from 0 to below 1"),
        ("known", float("nan"), "epoch-error is nan"),
        ("unknown", 0.2, "epoch-error is given beside durations that are not known"),
    ],
)
def test_what_cannot_be_used_is_refused_in_one_line(text: str, epoch_error: float, message: str) -> None:
    with pytest.raises(BadInput, match=message):
        parse_durations(text, epoch_error)
