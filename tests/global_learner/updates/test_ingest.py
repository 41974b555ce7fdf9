import numpy as np
import pytest
from learner_makers import SPEC, applied, update, vector

from global_learner.aggregation.base import ImmediateAggregator
from global_learner.aggregation.settings import AggregationSettings, OptimizerSettings
from global_learner.errors import Rejection, UpdateRejected
from global_learner.settings import IngestSettings
from global_learner.storage.snapshot import AdamState
from global_learner.updates.head import Head
from global_learner.updates.ingest import Ingest
from global_learner.updates.ledger import WINDOW, Ledger
from policy_net.learning.adam import AdamConstants

RATE = 1e-3


def rules(settings: IngestSettings) -> Ingest:
    """The rules under some settings, with a constant learning rate."""
    return Ingest(SPEC, settings, OptimizerSettings(learning_rate=RATE), AggregationSettings(largest_sample_weight=0.0))


@pytest.fixture
def head() -> Head:
    """Three updates old: two of north's, one of south's."""
    head = Head(AdamState.start(vector(0)), Ledger(16), ImmediateAggregator(AdamConstants()))
    head.apply(applied(1))
    head.apply(applied(2))
    head.apply(applied(3, cluster="south", sequence=1))
    return head


def with_value(value: float):
    gradient = vector(7)
    gradient[11] = value
    return gradient


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"sequence": 0}, Rejection.BAD_SEQUENCE),
        ({"sequence": 2**60}, Rejection.BAD_SEQUENCE),
        ({"spec_digest": "0" * 64}, Rejection.WRONG_SPEC),
        ({"spec_digest": ""}, Rejection.WRONG_SPEC),
        ({"gradient": vector(1)[:-1]}, Rejection.WRONG_SHAPE),
        ({"gradient": np.zeros(0, np.float32)}, Rejection.WRONG_SHAPE),
        ({"gradient": with_value(np.nan)}, Rejection.NOT_FINITE),
        ({"gradient": with_value(-np.inf)}, Rejection.NOT_FINITE),
        ({"gradient": with_value(1e4)}, Rejection.NORM_TOO_LARGE),
        ({"gradient": with_value(3e38)}, Rejection.NORM_TOO_LARGE),
        ({"samples": 0}, Rejection.BAD_SAMPLES),
        ({"effective_samples": float("nan")}, Rejection.BAD_SAMPLES),
        ({"effective_samples": -1.0}, Rejection.BAD_SAMPLES),
        ({"base_step": 4}, Rejection.AHEAD_OF_HEAD),
        ({"base_step": 0}, Rejection.TOO_STALE),
    ],
)
def test_an_unfit_update_is_rejected_for_its_reason_and_changes_nothing(head: Head, changes, reason) -> None:
    ingest = rules(IngestSettings(max_staleness_steps=1))
    before = (head.weights.tobytes(), head.ledger.to_json())
    with pytest.raises(UpdateRejected) as caught:
        ingest.judge(update(3, **{"base_step": 3, **changes}), head)
    assert caught.value.reason is reason
    assert (head.weights.tobytes(), head.ledger.to_json()) == before


def test_staleness_is_judged_against_the_clusters_that_are_active(head: Head) -> None:
    judgement = rules(IngestSettings()).judge(update(3, base_step=2), head)
    assert (judgement.staleness, judgement.active_clusters, judgement.learning_rate) == (1, 2, RATE)
    judgement = rules(IngestSettings()).judge(update(3, base_step=0), head)
    assert judgement.learning_rate == pytest.approx(RATE / (1 + 2 / 2))


def test_the_norm_is_the_euclidean_one(head: Head) -> None:
    gradient = np.zeros(SPEC.parameter_count, np.float32)
    gradient[:2] = (3.0, 4.0)
    assert rules(IngestSettings()).judge(update(3, gradient=gradient), head).sent_norm == pytest.approx(5.0)


def test_the_same_update_is_a_duplicate_and_another_incarnations_is_not(head: Head) -> None:
    assert head.ledger.holds(update(2))
    assert not head.ledger.holds(update(3))
    assert not head.ledger.holds(update(2, incarnation=2))
    assert not head.ledger.holds(update(2, cluster="south"))


def test_a_gap_is_accepted_and_what_comes_late_within_the_window_too(head: Head) -> None:
    ingest = rules(IngestSettings())
    ingest.judge(update(9, base_step=3), head)
    head.apply(applied(4, sequence=9))
    ingest.judge(update(5, base_step=4), head)


def test_a_sequence_below_the_window_is_rejected_since_nobody_knows_it_any_more(head: Head) -> None:
    head.apply(applied(4, sequence=WINDOW + 5))
    with pytest.raises(UpdateRejected) as caught:
        rules(IngestSettings()).judge(update(4, base_step=4), head)
    assert caught.value.reason is Rejection.BAD_SEQUENCE
