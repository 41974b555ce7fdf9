import numpy as np
from speed_tables import room_for, table
from states import make_job

from policy_net.baselines.drf import DrfPeakPolicy, bundle_peak
from policy_net.domain import Allocation, JobKind, Progress, Trigger

ALONE = {"kind": JobKind.ALLREDUCE, "max_ps": 0, "min_ps": 0}


def test_the_peak_is_sought_along_bundles_from_the_first_grant() -> None:
    grid = table(a={(1, 1): 1, (2, 2): 3, (3, 3): 2, (2, 3): 4, (9, 1): 50}).grid("a")
    assert bundle_peak(grid, make_job(0)) == 2
    assert bundle_peak(grid, make_job(0, min_workers=2)) == 3  # 2 workers + 1 server, then 3 + 2
    assert bundle_peak(grid, make_job(0, max_ps=1)) == 1
    assert bundle_peak(grid, make_job(0, min_workers=4, max_workers=3)) == 0


def test_an_all_reduce_job_peaks_in_workers() -> None:
    assert bundle_peak(table(a={(0, 1): 1, (0, 5): 9, (0, 6): 8}).grid("a"), make_job(0, **ALONE)) == 5


def test_equal_speeds_do_not_call_for_more() -> None:
    assert bundle_peak(np.ones((17, 17)), make_job(0)) == 1


def test_a_job_that_was_seen_to_slow_down_takes_no_more_than_its_peak() -> None:
    policy = DrfPeakPolicy()
    job = make_job(0, "a", requested=Allocation(1), **ALONE)
    assert policy.decide(room_for(40, [job]), Trigger.SLOT).of("job-0").workers > 4  # the prior is optimistic
    for workers, speed in ((1, 100.0), (2, 150.0), (4, 120.0), (8, 60.0), (16, 30.0)):
        policy.observe([Progress("job-0", "a", Allocation(workers), 1200.0, 1200.0 * speed, 12.0 * speed, 1e6)])
    assert policy.decide(room_for(40, [job]), Trigger.SLOT).of("job-0").workers in (2, 3)
