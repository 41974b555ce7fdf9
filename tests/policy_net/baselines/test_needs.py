import math

from speed_tables import table
from states import make_job

from policy_net.baselines.needs import remaining_samples, remaining_seconds
from policy_net.domain import Allocation


def test_declared_work_counts_as_declared_but_never_as_nothing() -> None:
    assert remaining_samples(make_job(0, remaining_epochs=400.0)) == 40_000.0
    assert remaining_samples(make_job(0, remaining_epochs=0.0, total_epochs=1000.0)) == 100.0


def test_work_that_rounds_to_nothing_is_left_all_the_same() -> None:
    for epochs in (0.0, 5e-324, 1e-300):
        assert remaining_samples(make_job(0, remaining_epochs=epochs, total_epochs=epochs)) > 1e-12


def test_unknown_work_counts_as_shown_whatever_the_total() -> None:
    unknown = make_job(0, work_known=False, remaining_epochs=3.0, total_epochs=1e9)
    assert remaining_samples(unknown) == 300.0
    fresh = make_job(0, work_known=False, remaining_epochs=0.0, total_epochs=0.0)
    assert 0 < remaining_samples(fresh) < 1


def test_time_is_work_over_speed_and_endless_where_a_job_cannot_train() -> None:
    grid = table(a={(1, 1): 100.0}).grid("a")
    assert remaining_seconds(make_job(0, remaining_epochs=400.0), grid, Allocation(1, 1)) == 400.0
    assert remaining_seconds(make_job(0), grid, Allocation(2, 2)) == math.inf
