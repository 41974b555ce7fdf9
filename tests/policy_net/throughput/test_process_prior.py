import math

import numpy as np
import pytest

from policy_net.domain import JobKind
from policy_net.exchange.statistics import SpeedStatistic
from policy_net.throughput.process_prior import (
    LOCAL_SCALE_SD,
    SCALE_SD,
    predicted_by_type,
    prior_of_kind,
    prior_of_type,
)


def reported(ps: int, workers: int, speed: float, count: int = 20) -> SpeedStatistic:
    return SpeedStatistic("a", JobKind.PS, ps, workers, math.log(speed), count)


@pytest.mark.parametrize("kind", JobKind)
def test_the_prior_of_a_kind_is_a_covariance_in_which_no_scale_is_known(kind: JobKind) -> None:
    prior = prior_of_kind(kind)
    assert len(prior.position) == len(prior.mean) == len(prior.smooth)
    assert prior.smooth == pytest.approx(prior.smooth.T)
    assert np.linalg.eigvalsh(prior.smooth).min() > -1e-6
    assert (np.sqrt(prior.smooth.diagonal()) >= SCALE_SD).all()
    assert not prior.of_type


def test_reports_say_most_where_they_were_made_and_leave_the_scale_here_open() -> None:
    predicted = predicted_by_type((reported(1, 1, 30.0), reported(2, 2, 55.0), reported(4, 4, 100.0)))
    assert predicted[4, 4][0] == pytest.approx(math.log(100.0), abs=0.1)
    assert predicted[4, 4][1] < predicted[8, 8][1] < predicted[16, 16][1]
    prior = prior_of_type((reported(4, 4, 100.0),))
    assert prior.of_type
    assert (np.sqrt(prior.smooth.diagonal()) >= LOCAL_SCALE_SD).all()


def test_no_report_leaves_no_prior_of_a_type() -> None:
    with pytest.raises(ValueError, match="at least one report"):
        prior_of_type(())
