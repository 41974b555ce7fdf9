"""Load of the demo's clusters at moments that they share."""

import pytest

from deploy.local.report import MOMENTS, amounts, moments
from policy_net.laboratory.simulation.metrics import Load


def test_clusters_are_added_up_at_moments_that_they_share() -> None:
    one, other = Load(4, [0.0, 10.0], [3, 0], [1, 0], [10.0]), Load(8, [5.0, 40.0], [5, 0], [2, 0], [40.0])
    at = moments([[one], [one, other]])
    assert (at[0], at[-1], len(at)) == (0.0, 40.0, MOMENTS)
    assert amounts([one, other], [0.0, 5.0, 10.0, 40.0]) == ([3.0, 8.0, 5.0, 0.0], [1.0, 3.0, 2.0, 0.0])
    assert at[1] == pytest.approx(40.0 / (MOMENTS - 1))


def test_the_last_twentieth_of_the_jobs_does_not_stretch_the_curve() -> None:
    ends = [*map(float, range(1, 20)), 9000.0]
    assert moments([[Load(4, [0.0], [0], [0], ends)]])[-1] == 19.0
